"""Leaders of a session and of a queue killed in turn under MQTT load.

Deliveries go on, nothing acknowledged is lost, QoS 2 comes once and in order.
`MQTT_KILLS=30 pytest -s -m long tests/cluster/test_mqtt_kills.py` prints how long deliveries paused.
"""

import os
import sys
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest

from millstream.coordinator.definition import partition_for
from millstream.protocol.internal_topics import MQTT_SESSIONS_TOPIC
from millstream.protocol.mqtt.packets import (
    Filter,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
)
from millstream.protocol.mqtt.properties import SubscribeProperties
from support.cluster import ClusterProcesses
from support.mqtt_client import RawMqtt
from support.waiting import wait_for

pytestmark = pytest.mark.long
_KILLS = int(os.environ.get("MQTT_KILLS", "4"))
_SESSION = {"clean": False, "expiry_s": 3600}


class _Device:
    """A client whose session is kept, at whichever node takes it; `work` is done until it is told to end."""

    def __init__(self, nodes: list, client_id: str, work) -> None:
        self._nodes = cycle(nodes)
        self._client_id = client_id
        self._work = work
        self.is_over = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.is_over.is_set():
            try:
                with RawMqtt(next(self._nodes), patience_s=8.0) as client:
                    client.connect(self._client_id, **_SESSION)
                    self._work(client, self.is_over)
            except (OSError, AssertionError, IndexError):
                # The node was killed, or does not serve yet.
                time.sleep(0.05)

    def end(self) -> None:
        self.is_over.set()
        self._thread.join(120)


class _Publishing:
    """One message at a time, QoS 1 and 2 in turn, sent again until it is acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self._received = False

    def work(self, client: RawMqtt, is_over: threading.Event) -> None:
        while not is_over.is_set():
            number = len(self.acknowledged)
            qos, packet_id = 1 + number % 2, number % 60_000 + 1
            if not self._received:
                client.send(Publish(f"load/{qos}", b"%d" % number, qos, packet_id))
                heard = client.hear()
                if qos == 1:
                    assert heard == Puback(packet_id), heard
                else:
                    assert heard == Pubrec(packet_id), heard
            if qos == 2:
                self._received = True
                client.send(Pubrel(packet_id))
                assert isinstance(client.hear(), Pubcomp)
            self._received = False
            self.acknowledged.append(number)


class _Subscribing:
    def __init__(self) -> None:
        self.got: list[tuple[float, int]] = []
        self.subscribed = threading.Event()
        self._unreleased: set[int] = set()

    def work(self, client: RawMqtt, is_over: threading.Event) -> None:
        if not self.subscribed.is_set():
            client.subscribe("load/+", qos=2)
            self.subscribed.set()
        while not is_over.is_set():
            heard = client.hear()
            if isinstance(heard, Pubrel):
                self._unreleased.discard(heard.packet_id)
                client.send(Pubcomp(heard.packet_id))
                continue
            assert isinstance(heard, Publish)
            if heard.qos == 1 or heard.packet_id not in self._unreleased:
                self.got.append((time.monotonic(), int(heard.payload)))
            if heard.qos == 2:
                self._unreleased.add(heard.packet_id)
            client.send((Puback if heard.qos == 1 else Pubrec)(heard.packet_id))


class _Enqueuing:
    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def work(self, client: RawMqtt, is_over: threading.Event) -> None:
        while not is_over.is_set():
            number = len(self.acknowledged)
            client.publish("$queue/jobs", b"%d" % number, 1, number % 60_000 + 1)
            self.acknowledged.append(number)


class _WorkingOff:
    """Settles by PUBACK. A message may come again: its acknowledgement may not have been stored."""

    def __init__(self) -> None:
        self.got: list[tuple[float, int]] = []

    def work(self, client: RawMqtt, is_over: threading.Event) -> None:
        users = (("consumer-group", "workers"), ("ack-mode", "packet"))
        client.send(Subscribe(1, (Filter("$queue/jobs", 1),), SubscribeProperties(users)))
        assert client.expect(Suback).reasons == (1,)
        while not is_over.is_set():
            message = client.expect(Publish)
            self.got.append((time.monotonic(), int(message.payload)))
            client.send(Puback(message.packet_id))


def _leader(cluster: ClusterProcesses, topic: str, key: str | None = None) -> int:
    """Of the topic's first partition, or of that of a coordinator's key."""
    leaders = cluster.topics(cluster.running[0])[topic]
    return leaders[0 if key is None else partition_for(key, len(leaders))]


class _Pauses:
    """How long after a kill the first message came that was sent after it."""

    def __init__(self, sent: list[int], got: list[tuple[float, int]]) -> None:
        self._sent = sent
        self._got = got
        self.seconds: list[float] = []

    def wait_for_load(self) -> None:
        least = len(self._got) + 25
        wait_for(lambda: len(self._got), lambda count: count > least, "deliveries")

    def begin(self) -> None:
        self._killed = time.monotonic()
        # What was sent before the kill and was under way does not count.
        self._newest = len(self._sent) + 2

    def end(self) -> None:
        wait_for(
            lambda: max((number for _, number in self._got), default=-1),
            lambda number: number >= self._newest,
            "a message that was sent after the kill",
        )
        self.seconds.append(next(at for at, number in self._got if number >= self._newest) - self._killed)

    def __str__(self) -> str:
        return " ".join(f"{each:.1f}" for each in sorted(self.seconds))


def test_deliveries_go_on_when_leaders_are_killed(tmp_path: Path) -> None:
    settings = {"mqtt.listen": "127.0.0.1:0", "replication.default_replication_factor": "3"}
    cluster = ClusterProcesses(tmp_path, 3, settings=settings).start()
    publishing, subscribing, enqueuing, working = _Publishing(), _Subscribing(), _Enqueuing(), _WorkingOff()
    of_session = _Pauses(publishing.acknowledged, subscribing.got)
    of_queue = _Pauses(enqueuing.acknowledged, working.got)
    try:
        cluster.create_topic("jobs", 1)
        nodes = list(cluster.nodes.values())
        reader = _Device(nodes, "reader", subscribing.work)
        assert subscribing.subscribed.wait(120)
        writers = [
            _Device(nodes[1:] + nodes[:1], "writer", publishing.work),
            _Device(nodes[2:] + nodes[:2], "filler", enqueuing.work),
        ]
        worker = _Device(nodes, "worker", working.work)
        for number in range(_KILLS):
            for each in (of_session, of_queue):
                each.wait_for_load()
            leader = (
                _leader(cluster, "jobs") if number % 2 else _leader(cluster, MQTT_SESSIONS_TOPIC, "reader")
            )
            for each in (of_session, of_queue):
                each.begin()
            cluster.nodes[leader].kill()
            for each in (of_session, of_queue):
                each.end()
            cluster.nodes[leader].start()
            cluster.wait_in_sync("jobs")
            cluster.wait_in_sync(MQTT_SESSIONS_TOPIC)
        for each in writers:
            each.end()
        for sent, got in ((publishing, subscribing), (enqueuing, working)):
            wait_for(
                lambda got=got: {number for _, number in got.got},
                lambda came, sent=sent: came.issuperset(sent.acknowledged),
                "all that was acknowledged",
            )
        for each in (reader, worker):
            each.end()
    finally:
        cluster.close()
    acknowledged = publishing.acknowledged
    came = Counter(number for _, number in subscribing.got)
    assert [number for number in acknowledged if number % 2 and came[number] > 1] == []
    for remainder in (0, 1):
        order = [number for number in came if number % 2 == remainder]
        assert order == sorted(order)
    sys.stdout.write(
        f"{_KILLS} kills, {len(acknowledged)} messages and {len(enqueuing.acknowledged)} of the queue;"
        f" pauses of deliveries in s: session {of_session}; queue {of_queue}\n"
    )
