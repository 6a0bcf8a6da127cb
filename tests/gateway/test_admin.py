"""The pages about the cluster, and /admin."""

import re
from typing import Any

import httpx
import pytest

from millstream.client import Consumer
from millstream.testing import EmbeddedBroker


def test_health_and_status_have_the_contracts_fields(node: EmbeddedBroker, gateway: httpx.Client) -> None:
    health = gateway.get("/health").json()
    assert (health["status"], health["brokers_total"], health["brokers_healthy"]) == ("ok", 1, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", health["timestamp"])
    status = gateway.get("/status").json()
    url = f"tcp://{node.bootstrap_servers}"
    assert {*status} >= {"proxy_config", "broker_status", "partition_distribution", "timestamp"}
    assert status["broker_status"] == {url: True}
    assert status["partition_distribution"][url][:3] == [0, 1, 2]
    assert status["proxy_config"]["virtual_nodes"] == 150


def test_topics_are_the_whole_clusters(gateway: httpx.Client) -> None:
    topics = gateway.get("/topics").json()
    assert topics["telemetry"] == [0, 1, 2]
    assert not [name for name in topics if name.startswith("__")]


def test_metrics_have_the_contracts_names(gateway: httpx.Client) -> None:
    gateway.post("/produce?topic=telemetry", content=b"x")
    text = gateway.get("/metrics").text
    for line in (
        r'proxy_requests_total\{endpoint="produce",status="200"\} \d',
        r'proxy_request_duration_seconds_count\{endpoint="produce"\} \d',
        r'proxy_broker_requests_total\{broker="tcp://127.0.0.1:\d+",status="ok"\} \d',
        r'proxy_broker_health\{broker="tcp://127.0.0.1:\d+"\} 1.0',
        r'proxy_health_checks_total\{broker="tcp://127.0.0.1:\d+",status="ok"\} \d',
        r'proxy_breaker_open\{broker="tcp://127.0.0.1:\d+"\} 0.0',
        r"proxy_in_flight_bytes 0.0",
    ):
        assert re.search(line, text), line


def test_a_topic_is_made_looked_at_changed_and_deleted(gateway: httpx.Client) -> None:
    made = gateway.post("/admin/topics", json={"name": "made", "configs": {"retention.ms": "1000"}})
    assert (made.status_code, made.json()) == (
        201,
        {"name": "made", "partitions": 12, "replication_factor": 1},
    )
    assert gateway.post("/admin/topics", json={"name": "made"}).status_code == 409
    found = gateway.get("/admin/topics/made").json()
    assert (len(found["partitions"]), found["configs"]) == (12, {"retention.ms": "1000"})
    assert found["partitions"][0] == {"partition": 0, "leader": 1, "replicas": [1], "in_sync": [1]}
    grown = gateway.post("/admin/topics/made/partitions", json={"count": 13})
    assert (grown.status_code, len(gateway.get("/topics").json()["made"])) == (200, 13)
    changed = gateway.patch(
        "/admin/topics/made/configs", json={"retention.ms": None, "segment.bytes": "1048576"}
    )
    now = {"segment.bytes": "1048576"}
    assert (changed.json()["configs"], gateway.get("/admin/topics/made/configs").json()["configs"]) == (
        now,
        now,
    )
    assert gateway.delete("/admin/topics/made").status_code == 204
    assert gateway.get("/admin/topics/made").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/admin/topics", {"name": "a b"}, 400),
        ("POST", "/admin/topics", {"name": "x", "partitions": 0}, 400),
        ("POST", "/admin/topics", {"name": "x", "replication_factor": 9}, 400),
        ("POST", "/admin/topics", {"nam": "x"}, 400),
        ("POST", "/admin/topics", {"name": "x", "configs": {"no.such": "1"}}, 400),
        ("POST", "/admin/topics/telemetry/partitions", {"count": 2}, 400),
        ("PATCH", "/admin/topics/telemetry/configs", {"retention.ms": "x"}, 400),
        ("PATCH", "/admin/topics/none/configs", {}, 404),
        ("DELETE", "/admin/topics/none", None, 404),
        ("DELETE", "/admin/topics/__consumer_offsets", None, 404),
        ("POST", "/admin/reassignments", [], 400),
        ("POST", "/admin/reassignments", [{"topic": "telemetry", "partition": 0, "replicas": [7]}], 400),
        ("GET", "/admin/ring?joins=x", None, 400),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_with_a_reason(
    gateway: httpx.Client, method: str, path: str, body: Any, status: int
) -> None:
    answer = gateway.request(method, path, json=body, headers={"accept": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]


def test_brokers_reassignments_and_the_ring(gateway: httpx.Client) -> None:
    (broker,) = gateway.get("/admin/brokers").json()["brokers"]
    assert (broker["id"], broker["is_healthy"], broker["is_fenced"]) == (1, True, False)
    assert gateway.get("/admin/reassignments").json() == {"count": 0, "reassignments": []}
    ring = gateway.get("/admin/ring", params={"joins": 2}).json()
    assert {*ring["after"]} == {"1", "2"}
    assert ring["after"]["2"] == ring["moved"]
    assert ring["cluster_virtual_nodes"] == 150
    assert "warning" not in ring
    other = gateway.get("/admin/ring", params={"joins": 2, "virtual_nodes": 10}).json()
    assert "150" in other["warning"]


def test_groups_are_listed_described_and_deleted(node: EmbeddedBroker, gateway: httpx.Client) -> None:
    gateway.post("/produce?topic=telemetry", content=b"x")
    with Consumer(node.bootstrap_servers, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["telemetry"])
        assert consumer.poll(60)
        (found,) = (
            each for each in gateway.get("/admin/groups").json()["groups"] if each["group"] == "readers"
        )
        assert (found["state"], found["protocol_type"]) == ("Stable", "consumer")
        assert len(gateway.get("/admin/groups/readers").json()["members"]) == 1
        assert gateway.delete("/admin/groups/readers").status_code == 409
    assert gateway.delete("/admin/groups/readers").status_code == 204
    assert gateway.delete("/admin/groups/readers").status_code == 404


def test_the_document_and_its_page_are_served(gateway: httpx.Client) -> None:
    from openapi_spec_validator import validate

    document = gateway.get("/openapi.json").json()
    validate(document)
    assert {"/produce", "/consume", "/ack", "/nack", "/reject", "/admin/topics"} <= {*document["paths"]}
    assert "/docs/docs.js" in gateway.get("/docs").text
