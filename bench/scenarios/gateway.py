"""The HTTP gateway of a node: single messages, batches, latency, delivery with acknowledgements, idle streams.

Peers that people would put there (Karapace, Strimzi's bridge) need Apache Kafka beside them and are not measured.
"""

import http.client
import json
import socket
import time
from urllib.parse import urlsplit

from bench.httpload import latencies_ms, request, requests_per_second
from bench.peers import Durability
from bench.peers.millstream import Millstream
from bench.scenarios import names
from bench.session import Session

NAME = "gateway"
_PARTITIONS = 12
_PER_BATCH = 500
_ONE = json.dumps({"payload": "x" * 100}).encode()


def run(session: Session) -> None:
    seconds = 2.0 if session.plan.quick else 8.0
    rounds = session.plan.rounds_of(full=3, quick=1)
    with session.millstream(settings={"http.max_connections": "12000"}) as broker:
        for topic in ("singles", "batches", "latency", "queue"):
            broker.create_topic(topic, _PARTITIONS, Durability.RELAXED)
        url = broker.http_url
        single = request("/produce?topic=singles", _ONE)
        session.display.step("single messages over 64 connections")
        before = broker.usage()
        rates = [requests_per_second(url, single, 64, seconds) for _ in range(rounds)]
        spent = broker.usage().cpu_seconds - before.cpu_seconds
        session.record_figure(NAME, names.GATEWAY_POSTS, "/s", rates)
        session.record_figure(NAME, names.GATEWAY_CPU, "us", [spent / (sum(rates) * seconds) * 1e6])
        session.display.step("batches")
        lines = request("/produce?topic=batches", b"\n".join([_ONE] * _PER_BATCH), "application/x-ndjson")
        batched = [requests_per_second(url, lines, 8, seconds) * _PER_BATCH for _ in range(rounds)]
        session.record_figure(NAME, names.GATEWAY_BATCHED, "msg/s", batched)
        session.display.step("latency at 500 requests a second")
        found = latencies_ms(url, request("/produce?topic=latency", _ONE), 500, seconds * 2)
        session.record_figure(NAME, names.GATEWAY_P50, "ms", [found[len(found) // 2]])
        session.record_figure(NAME, names.GATEWAY_P99, "ms", [found[len(found) * 99 // 100]])
        session.display.step("delivery and acknowledgement")
        session.record_figure(NAME, names.GATEWAY_DELIVERED, "msg/s", [_deliver(url, session.plan.quick)])
        session.display.step("idle streams")
        _idle_streams(session, broker, 1_000 if session.plan.quick else 10_000)


def _deliver(url: str, quick: bool) -> float:
    """One consumer that polls for up to 500 messages and acknowledges them together."""
    count = 2_000 if quick else 20_000
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
    batch = b"\n".join([_ONE] * _PER_BATCH)
    for _ in range(count // _PER_BATCH):
        connection.request("POST", "/produce?topic=queue", batch, {"content-type": "application/x-ndjson"})
        connection.getresponse().read()
    began, done = time.perf_counter(), 0
    while done < count:
        connection.request(
            "GET", "/consume?topic=queue&group=g&limit=500", headers={"accept": "application/json"}
        )
        ids = [each["id"] for each in json.loads(connection.getresponse().read())["messages"]]
        if ids:
            connection.request("POST", "/ack?group=g", json.dumps({"ids": ids}))
            answer = connection.getresponse()
            if answer.read() != b"ok":
                raise RuntimeError("an acknowledgement was refused")
        done += len(ids)
    return count / (time.perf_counter() - began)


def _idle_streams(session: Session, broker: Millstream, count: int) -> None:
    before = broker.usage().rss_bytes
    address = urlsplit(broker.http_url)
    opened = []
    try:
        for _ in range(count):
            stream = socket.create_connection((address.hostname, address.port), timeout=120)
            stream.sendall(
                b"GET /consume?topic=singles&group=idle&partition=0&permits=1 HTTP/1.1\r\nHost: x\r\n\r\n"
            )
            opened.append(stream)
        for stream in opened:
            stream.recv(64)
        used = (broker.usage().rss_bytes - before) / 1e6
        session.record_figure(NAME, names.gateway_streams(count), "MB", [used])
    finally:
        for stream in opened:
            stream.close()
