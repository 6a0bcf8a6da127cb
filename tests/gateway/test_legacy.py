"""proxy.legacy: texts and codes of the first queue, for clients that look at them; and clients as they were written."""

import json
from collections.abc import Iterator
from urllib.request import Request, urlopen

import httpx
import pytest

from millstream.testing import EmbeddedBroker

ROW = [
    "2026-01-01T00:00:00Z",
    "DCGM_FI_DEV_GPU_UTIL",
    "0",
    "nvidia0",
    "GPU-1",
    "H100",
    "host",
    "",
    "",
    "",
    "93",
    "",
]


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"telemetry": 2}, settings={"proxy.legacy": True}) as broker:
        yield broker


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("POST", "/produce", "topic and partition required"),
        ("POST", "/produce?topic=telemetry", "topic and partition required"),
        ("POST", "/produce?topic=telemetry&partition=x", "bad partition"),
        ("GET", "/consume?topic=telemetry&group=g", "topic, partition and group required"),
        ("GET", "/consume?topic=telemetry&group=g&partition=x", "bad partition"),
        ("POST", "/ack?topic=telemetry&group=g", "topic, partition and group required"),
        ("POST", "/ack?topic=telemetry&group=g&partition=x", "bad partition"),
    ],
)
def test_the_old_texts(gateway: httpx.Client, method: str, path: str, text: str) -> None:
    answer = gateway.request(method, path, json={"id": "x", "payload": "x"} if method == "POST" else None)
    assert (answer.status_code, answer.text) == (400, text)


def test_an_old_streamer_and_collector_work_unchanged(node: EmbeddedBroker) -> None:
    """As they are written: one stream a partition, no Accept, an id of whatever form, the partition of the message."""
    url = node.http_url
    body = json.dumps({"payload": json.dumps(ROW)}).encode()
    produced = json.load(urlopen(Request(f"{url}/produce?topic=telemetry&partition=1", body), timeout=60))
    assert produced["id"]
    with urlopen(f"{url}/consume?topic=telemetry&partition=1&group=collectors", timeout=60) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                message = json.loads(line[6:])
                break
        assert json.loads(message["payload"]) == ROW
        ack = json.dumps({"id": message["id"]}).encode()
        path = f"/ack?topic=telemetry&partition={message['partition']}&group=collectors"
        assert urlopen(Request(url + path, ack), timeout=60).read() == b"ok"
    assert json.load(urlopen(f"{url}/topics", timeout=60)) == {"telemetry": [0, 1]}
    assert json.load(urlopen(f"{url}/stats", timeout=60))["produced"] == 1
