"""Reads telemetry over HTTP and writes it to InfluxDB: /consume, write, /ack.

    python examples/http_collector.py --url http://localhost:8080 --influx 'http://localhost:8086?org=o&bucket=b'

Nothing but the standard library. A message is acknowledged after InfluxDB has it; a collector that dies leaves its
messages to the others of its group, and writing a point twice changes nothing.
"""

import argparse
import http.client
import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

_TAGS = ("gpu_id", "device", "uuid", "modelName", "Hostname", "container", "pod", "namespace")
_PAUSE_S = 1.0


def connect(url: str, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(url if "//" in url else f"//{url}")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "localhost", parts.port, timeout=timeout_s)


def events(url: str, topic: str, group: str) -> Iterator[dict[str, Any]]:
    """Messages as they come. The server writes a line at least every 15 seconds, so silence is a dead connection."""
    connection = connect(url, 60.0)
    query = urlencode({"topic": topic, "group": group})
    connection.request("GET", f"/consume?{query}", headers={"accept": "text/event-stream"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status} {answer.read().decode(errors='replace')}")
    try:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
    finally:
        connection.close()


def line_of(record: dict[str, Any]) -> str:
    """A record as InfluxDB's line protocol: the metric is the measurement, texts are tags."""
    moment = datetime.fromisoformat(record["timestamp"])
    tags = "".join(f",{tag}={_escaped(str(record[tag]))}" for tag in _TAGS if record.get(tag))
    micros = int(moment.timestamp() * 1_000_000)
    return f"{_escaped(record['metric_name'])}{tags} value={float(record['value'])} {micros}"


def _escaped(text: str) -> str:
    for special in "\\, =":
        text = text.replace(special, f"\\{special}")
    return text


class Influx:
    def __init__(self, url: str, token: str) -> None:
        query = parse_qs(urlsplit(url).query)
        self._path = "/api/v2/write?" + urlencode(
            {"org": query["org"][0], "bucket": query["bucket"][0], "precision": "us"}
        )
        self._connection = connect(url, 60.0)
        self._headers = {"content-type": "text/plain; charset=utf-8"}
        if token:
            self._headers["authorization"] = f"Token {token}"

    def write(self, lines: list[str]) -> None:
        self._connection.request("POST", self._path, "\n".join(lines).encode(), self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"InfluxDB answered {answer.status} {text.decode(errors='replace')}")


class Acks:
    def __init__(self, url: str, group: str) -> None:
        self._connection = connect(url, 60.0)
        self._group = urlencode({"group": group})

    def settle(self, call: str, ids: list[str]) -> None:
        if ids:
            self._connection.request("POST", f"/{call}?{self._group}", json.dumps({"ids": ids}))
            self._connection.getresponse().read()  # what another has by now is not ours to settle


def collect(url: str, topic: str, group: str, influx: Influx) -> None:
    acks = Acks(url, group)
    for message in events(url, topic, group):
        try:
            found = json.loads(message["payload"])
            lines = [line_of(record) for record in (found if isinstance(found, list) else [found])]
        except (ValueError, KeyError, TypeError, AttributeError):
            acks.settle("reject", [message["id"]])  # it will not become readable by trying again
            continue
        influx.write(lines)
        acks.settle("ack", [message["id"]])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given = os.environ.get("MSG_QUEUE_URL") or os.environ.get("MSG_QUEUE_ADDR")
    parser.add_argument("--url", default=given or "http://localhost:8080")
    parser.add_argument("--topic", default="telemetry")
    parser.add_argument("--group", default="collectors")
    parser.add_argument("--influx", default="http://localhost:8086?org=millstream&bucket=telemetry")
    options = parser.parse_args()
    while True:
        try:
            influx = Influx(options.influx, os.environ.get("INFLUX_TOKEN", ""))
            collect(options.url, options.topic, options.group, influx)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            print(f"trying again: {error}", flush=True)
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
