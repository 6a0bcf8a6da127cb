"""A gateway in front of three brokers: what it does while they come and go, and the log lines that explain it."""

import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from support.cluster import ClusterProcesses, cluster_of
from support.gateway import GatewayAlone
from support.sse import Events
from support.waiting import wait_for

QUICK = {"HEALTH_INTERVAL_SECONDS": "1"}
TALKATIVE = {"MILLSTREAM_LOG_LEVEL": "debug", "VIRTUAL_NODES": "10"}
OPERATIONS = Path(__file__).parents[2] / "docs" / "OPERATIONS.md"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    settings = {"cluster.session_timeout": "10s", "replication.virtual_nodes": "64"}
    with cluster_of(tmp_path, settings=settings) as cluster:
        yield cluster.start()


def stored(gateway: httpx.Client, topic: str, partitions: int) -> list[str]:
    found = []
    for partition in range(partitions):
        offset = 0
        while True:
            path = f"/topics/{topic}/partitions/{partition}/records"
            answer = gateway.get(path, params={"offset": offset, "limit": 1000})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            found += [each["payload"] for each in page["records"]]
            if page["next_offset"] >= page["high_watermark"]:
                break
            offset = page["next_offset"]
    return found


class Senders:
    """Clients that send one message after the other through a gateway, and note what was acknowledged."""

    def __init__(self, url: str, topic: str, count: int) -> None:
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self.refused: list[tuple[int, str, str | None]] = []
        self._threads = [
            threading.Thread(target=self._run, args=(url, topic, number), daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, url: str, topic: str, number: int) -> None:
        with httpx.Client(base_url=url, timeout=90) as client:
            sent = 0
            while not self._stop.is_set():
                payload = f"{number}-{sent}"
                try:
                    answer = client.post(f"/produce?topic={topic}", json={"payload": payload})
                except httpx.TransportError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 200:
                    self.acknowledged.append(payload)
                    sent += 1
                else:
                    self.refused.append((answer.status_code, answer.text, answer.headers.get("retry-after")))
                    time.sleep(0.05)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged), lambda seen: seen >= wanted, "acknowledgements go on")


def test_what_was_acknowledged_through_a_gateway_survives_a_killed_broker(
    tmp_path: Path, cluster: ClusterProcesses
) -> None:
    cluster.create_topic("telemetry", 6)
    with GatewayAlone(tmp_path / "gateway", cluster.seeds, QUICK) as gateway:
        gateway.wait_healthy(3)
        status = gateway.client.get("/status").json()
        assert sorted(p for led in status["partition_distribution"].values() for p in led) == [*range(6)]
        assert [*status["broker_status"].values()] == [True] * 3
        senders = Senders(f"http://{gateway.address}", "telemetry", 4)
        senders.wait_for_more(200)
        cluster.nodes[2].kill()
        gateway.wait_healthy(2)
        senders.wait_for_more(500)
        cluster.nodes[2].start()
        gateway.wait_healthy(3)
        senders.wait_for_more(200)
        senders.stop()
        for code, text, retry_after in senders.refused:
            assert (code, bool(retry_after)) in {(502, False), (503, True)}, text
        assert {*senders.acknowledged} <= {*stored(gateway.client, "telemetry", 6)}
        failed_over = [event["place"] for event in gateway.events("failover")]
        assert failed_over, "the log names the partitions that moved"
        changes = [(event["broker"], event["healthy"]) for event in gateway.events("broker health changed")]
        assert (f"tcp://{cluster.nodes[2].listen}", False) in changes
        assert len(gateway.events("broker discovered")) == 3
        assert gateway.stop() == 0


def test_any_gateway_takes_any_request_and_a_node_is_one_too(
    tmp_path: Path, cluster: ClusterProcesses
) -> None:
    cluster.create_topic("telemetry", 3)
    with (
        GatewayAlone(tmp_path / "one", cluster.seeds, TALKATIVE) as one,
        GatewayAlone(tmp_path / "two", cluster.nodes[3].listen) as two,
        httpx.Client(base_url=f"http://{cluster.nodes[1].http}", timeout=90) as node,
    ):
        for gateway in (one, two):
            gateway.wait_healthy(3)
        for client in (one.client, two.client, node):
            for partition in range(3):
                answer = client.post(f"/produce?topic=telemetry&partition={partition}", content=b"x")
                assert answer.json()["durability"] == "replicated and on disk"
        for client in (one.client, two.client, node):
            assert len(stored(client, "telemetry", 3)) == 9
            assert client.get("/topics").json() == {"telemetry": [0, 1, 2]}
        routed = one.events("routed")
        assert {event["place"] for event in routed} == {f"telemetry-{index}" for index in range(3)}
        assert {event["broker"] for event in routed} <= {
            f"tcp://{node.listen}" for node in cluster.nodes.values()
        }
        for gateway, own in ((one, 10), (two, 150)):
            (differs,) = wait_for(
                partial(gateway.events, "ring preview differs from cluster"), bool, "the ring is compared"
            )
            assert (differs["proxy_virtual_nodes"], differs["replication_virtual_nodes"]) == (own, 64)
        # The commands that docs/OPERATIONS.md has for these cases.
        commands = re.findall(r"wget -qO- http://[^/]+:8080(/\S+)", OPERATIONS.read_text())
        assert [one.client.get(path).status_code for path in commands] == [200] * 2


@pytest.mark.long
def test_one_gateway_over_twelve_brokers(tmp_path: Path) -> None:
    """Each broker leads a partition, and one of them is killed."""
    with cluster_of(tmp_path / "cluster", 12, {"cluster.session_timeout": "4s"}) as cluster:
        cluster.start()
        cluster.create_topic("telemetry", 12)
        with GatewayAlone(tmp_path / "gateway", cluster.seeds, QUICK) as gateway:
            gateway.wait_healthy(12)
            led = gateway.client.get("/status").json()["partition_distribution"]
            assert sorted(map(len, led.values())) == [1] * 12
            payloads = [f"m{number}" for number in range(24)]
            for number, payload in enumerate(payloads):
                place = {"topic": "telemetry", "partition": number % 12}
                answer = gateway.client.post("/produce", params=place, json={"payload": payload})
                assert answer.json()["durability"] == "replicated and on disk", answer.text
            cluster.nodes[7].kill()
            gateway.wait_healthy(11)
            more = [f"n{number}" for number in range(12)]
            for number, payload in enumerate(more):
                place = {"topic": "telemetry", "partition": number}
                assert gateway.client.post("/produce", params=place, content=payload).status_code == 200
            assert sorted(stored(gateway.client, "telemetry", 12)) == sorted(payloads + more)


# The cases of "Troubleshooting" in docs/OPERATIONS.md, each with the line that explains it.


def test_no_healthy_brokers_available(tmp_path: Path) -> None:
    with GatewayAlone(tmp_path, "127.0.0.1:1", QUICK) as gateway:
        answer = gateway.client.post("/produce?topic=telemetry", json={"payload": "x"})
        assert (answer.status_code, answer.text) == (503, "no healthy brokers available")
        assert answer.headers["retry-after"] == "1"
        assert gateway.client.get("/health").status_code == 503
        (event,) = gateway.events("no healthy brokers available")
        assert "BROKER_SERVICE" in event["advice"]


def test_uneven_distribution_and_delivery_failures(tmp_path: Path, cluster: ClusterProcesses) -> None:
    everything_on_1 = [{"partition_index": index, "broker_ids": [1]} for index in range(6)]
    wanted = {
        "name": "one-sided",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": everything_on_1,
    }
    (created,) = cluster.ask(1, "create_topics", 7, topics=[wanted]).topics
    assert created.error_code == 0
    variables = {**QUICK, "MILLSTREAM_PROXY_FAILOVER_WAIT": "1s"}
    with GatewayAlone(tmp_path / "gateway", cluster.nodes[2].listen, variables) as gateway:
        gateway.wait_healthy(3)
        uneven = wait_for(
            lambda: gateway.events("partition distribution uneven"), bool, "the log says that it is uneven"
        )
        assert uneven[-1]["leaders"][f"tcp://{cluster.nodes[1].listen}"] == 6
        assert "rebalance" in uneven[-1]["advice"]
        cluster.nodes[1].kill()
        answer = gateway.client.post("/produce?topic=one-sided&partition=0", json={"payload": "x"})
        assert answer.status_code in {502, 503}
        explained = gateway.events("no broker to send to") + gateway.events("delivery failed")
        assert {event["place"] for event in explained} == {"one-sided-0"}


def test_what_waits_for_a_leader_is_bounded_and_a_broker_that_fails_is_left_alone(
    tmp_path: Path, cluster: ClusterProcesses
) -> None:
    assignments = [{"partition_index": 0, "broker_ids": [1]}]
    wanted = {"name": "alone", "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    (created,) = cluster.ask(1, "create_topics", 7, topics=[wanted]).topics
    assert created.error_code == 0
    limits = {
        "MILLSTREAM_PROXY_FAILOVER_WAIT": "3s",
        "MILLSTREAM_PROXY_FAILOVER_BUFFER": "2KB",
        "MILLSTREAM_PROXY_BREAKER_FAILURES": "1",
        "MILLSTREAM_PROXY_BREAKER_PAUSE": "1s",
        "REQUEST_TIMEOUT_SECONDS": "5",
    }
    with GatewayAlone(tmp_path / "gateway", cluster.nodes[2].listen, {**QUICK, **limits}) as gateway:
        gateway.wait_healthy(3)
        broker = f"tcp://{cluster.nodes[1].listen}"
        senders = Senders(f"http://{gateway.address}", "alone", 2)
        senders.wait_for_more(20)
        cluster.nodes[1].kill()

        def states() -> list[str]:
            return [event["now"] for event in gateway.events("circuit breaker changed")]

        wait_for(states, lambda seen: "open" in seen, "the breaker opens")
        metrics = gateway.client.get("/metrics").text
        assert f'proxy_broker_requests_total{{broker="{broker}",status="error"}}' in metrics
        assert f'proxy_broker_requests_total{{broker="{broker}",status="ok"}}' in metrics
        assert f'proxy_breaker_open{{broker="{broker}"}}' in metrics
        too_much = gateway.client.post("/produce?topic=alone", content=b"x" * 3_000)
        assert (too_much.status_code, too_much.text) == (503, "too many messages wait for a leader")
        assert too_much.headers["retry-after"] == "1"
        too_long = gateway.client.post("/produce?topic=alone", content=b"x")
        assert too_long.status_code in {502, 503}, too_long.text
        shed = gateway.client.get("/metrics").text
        for reason in ("failover buffer", "no leader"):
            assert f'proxy_shed_total{{reason="{reason}"}}' in shed
        cluster.nodes[1].start()
        senders.wait_for_more(20)
        senders.stop()
        assert states()[-1] == "closed"
        for code, text, retry_after in senders.refused:
            assert (code, bool(retry_after)) in {(502, False), (503, True)}, text
        assert {*senders.acknowledged} <= {*stored(gateway.client, "alone", 1)}
        assert "proxy_buffered_bytes 0.0" in gateway.client.get("/metrics").text


def test_an_answer_says_what_a_message_has_reached(cluster: ClusterProcesses) -> None:
    relaxed = [{"name": "flush.messages", "value": "10000"}]
    with httpx.Client(base_url=f"http://{cluster.nodes[3].http}", timeout=90) as client:
        for name, replicas, configs, durability in (
            ("one-relaxed", [1], relaxed, "memory"),
            ("one", [1], [], "disk"),
            ("two-relaxed", [1, 2], relaxed, "replicated"),
            ("two", [1, 2], [], "replicated and on disk"),
        ):
            assignments = [{"partition_index": 0, "broker_ids": replicas}]
            wanted = {
                "name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments,
                "configs": configs,
            }  # fmt: skip
            (created,) = cluster.ask(1, "create_topics", 7, topics=[wanted]).topics
            assert created.error_code == 0, created.error_message
            wait_for(
                lambda name=name: (
                    client.post(f"/produce?topic={name}", content=b"x").json().get("durability")
                ),
                lambda told, durability=durability: told == durability,
                f"{name}: {durability}",
            )


def test_a_gateway_that_is_told_to_stop_ends_its_streams_and_gives_messages_back(
    tmp_path: Path, cluster: ClusterProcesses
) -> None:
    cluster.create_topic("drained", 1)
    with (
        GatewayAlone(tmp_path / "one", cluster.seeds, QUICK) as one,
        GatewayAlone(tmp_path / "two", cluster.seeds, QUICK) as two,
    ):
        for gateway in (one, two):
            gateway.wait_healthy(3)
        assert one.client.post("/produce?topic=drained", content=b"x").status_code == 200
        with Events(one.client, topic="drained", group="g") as events:
            first = events.next()
            assert one.stop() == 0
            # To a whole end: a stream that was cut raises.
            assert not [line for line in events.lines if line.startswith("data:")]
        with Events(two.client, topic="drained", group="g") as events:
            again = events.next()
        assert (again["offset"], again["delivery_count"]) == (first["offset"], 2)
