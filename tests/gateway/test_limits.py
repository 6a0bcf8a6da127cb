"""What a gateway refuses because it, or a queue, is full: with a reason, and when to come back."""

from collections.abc import Iterator

import httpx
import pytest

from millstream.testing import EmbeddedBroker

FULL = {"queue.max.depth": "2", "queue.groups": "g"}


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    settings = {"proxy.max_in_flight": "4KiB", "proxy.legacy": False}
    with EmbeddedBroker(topics={"telemetry": 1}, settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def legacy() -> Iterator[httpx.Client]:
    with (
        EmbeddedBroker(settings={"proxy.legacy": True}) as broker,
        httpx.Client(base_url=broker.http_url, timeout=90) as client,
    ):
        yield client


def test_more_than_may_be_on_its_way_is_shed(gateway: httpx.Client) -> None:
    refused = gateway.post("/produce?topic=telemetry", content=b"x" * 5_000)
    assert (refused.status_code, refused.text, refused.headers["retry-after"]) == (
        503, "too many messages are on their way", "1",
    )  # fmt: skip
    assert gateway.post("/produce?topic=telemetry", content=b"x" * 1_000).status_code == 200
    metrics = gateway.get("/metrics").text
    assert 'proxy_shed_total{reason="in flight"} 1.0' in metrics
    assert "proxy_in_flight_bytes 0.0" in metrics


def fill(client: httpx.Client) -> httpx.Response:
    """Until the queue is full: the third message that nobody has settled is one too many."""
    client.post("/admin/topics", json={"name": "full", "partitions": 1, "configs": FULL})
    # The group's queue begins with who consumes it.
    query = "topic=full&group=g&partition=0&wait=0"
    answer = client.get(f"/consume?{query}", headers={"accept": "application/json"})
    assert answer.status_code == 200, answer.text
    for _ in range(2):
        assert client.post("/produce?topic=full&partition=0", content=b"x").status_code == 200
    return client.post("/produce?topic=full&partition=0", content=b"x")


def test_a_full_queue_says_when_to_come_back(gateway: httpx.Client) -> None:
    refused = fill(gateway)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "queue is full" in refused.text
    assert "queue.max.depth" in refused.text


def test_a_full_queue_of_old_clients_is_an_enqueue_that_failed(legacy: httpx.Client) -> None:
    refused = fill(legacy)
    assert (refused.status_code, refused.text.startswith("enqueue failed: ")) == (500, True), refused.text
