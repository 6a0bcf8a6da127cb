"""The HTTP gateway, of a node and alone: single messages, batches, latency, delivery, acknowledgements, idle streams.

Karapace and Strimzi's bridge, which people would put there, can be had from neither PyPI nor Maven's registry.
"""

import contextlib
import json
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from bench.httpload import (
    acknowledged_per_second,
    fan_out_per_second,
    http_asks,
    kafka_asks,
    latencies_ms,
    request,
    requests_per_second,
)
from bench.machine import usage
from bench.peers import Durability
from bench.peers.millstream import Millstream, environment
from bench.scenarios import names
from bench.session import Session
from millstream.testing.processes import NodeProcess

NAME = "gateway"
_PARTITIONS = 12
_PER_BATCH = 500
_ONE = json.dumps({"payload": "x" * 100}).encode()


def run(session: Session) -> None:
    seconds = 2.0 if session.plan.quick else 8.0
    rounds = session.plan.rounds_of(full=3, quick=1)
    with session.millstream(settings={"http.max_connections": "12000"}) as broker:
        for topic in ("singles", "batches", "latency", "queue", "fan-out"):
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
        with _gateway_alone(session, broker.bootstrap) as alone:
            _latencies(session, broker, alone, seconds)
        session.display.step("delivery and acknowledgement")
        _delivery(session, url)
        session.display.step("idle streams")
        _idle_streams(session, broker, 1_000 if session.plan.quick else 10_000)


def _latencies(session: Session, broker: Millstream, alone: "_Alone", seconds: float) -> None:
    """In turns, so that other work on the machine meets all of them."""
    post = request("/produce?topic=latency", _ONE)
    ways = {
        "direct client": lambda count: kafka_asks(broker.bootstrap, "latency", count),
        "a node's gateway": lambda count: http_asks(broker.http_url, post, count),
        "a gateway alone": lambda count: http_asks(alone.url, post, count),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    shares = []
    for _ in range(2 if session.plan.quick else 6):
        for way, connect in ways.items():
            before, began = usage(alone.node.pid).cpu_seconds, time.perf_counter()
            found[way] += latencies_ms(connect, 500, seconds / 2)
            if way == "a gateway alone":
                used = usage(alone.node.pid).cpu_seconds - before
                shares.append(used / (time.perf_counter() - began))
    session.record_figure(NAME, names.GATEWAY_ALONE_CPU, "", shares)
    session.record_figure(NAME, names.GATEWAY_ALONE_MEMORY, "MB", [usage(alone.node.pid).rss_bytes / 1e6])
    for percentile, part in (("p50", 0.5), ("p99", 0.99)):
        at = {way: sorted(some)[int(len(some) * part)] for way, some in found.items()}
        for way, value in at.items():
            session.record_figure(NAME, names.gateway_latency(way, percentile), "ms", [value])
            if way != "direct client":
                added = value - at["direct client"]
                session.record_figure(NAME, names.gateway_added(way, percentile), "ms", [added])


class _Alone(msgspec.Struct):
    node: NodeProcess
    url: str


@contextmanager
def _gateway_alone(session: Session, bootstrap: str) -> Iterator[_Alone]:
    command = [sys.executable, "-m", "millstream", "serve", "--roles", "gateway", "--seeds", bootstrap]
    options = ["--http", "127.0.0.1:0", "--log-format", "json"]
    with session.data_directory() as directory:
        node = NodeProcess("the gateway", directory / "gateway.log", [*command, *options], environment())
        node.launch()
        try:
            url = f"http://{node.wait_until_ready()['http']}"
            for _ in range(600):
                with contextlib.suppress(OSError):
                    if urllib.request.urlopen(f"{url}/health", timeout=60).status == 200:
                        break
                time.sleep(0.1)
            yield _Alone(node, url)
        finally:
            if node.is_running:
                node.stop()


def _delivery(session: Session, url: str) -> None:
    batches = 4 if session.plan.quick else 12
    lines = b"\n".join([_ONE] * _PER_BATCH)
    fan = request("/produce?topic=fan-out", lines, "application/x-ndjson")
    rate = fan_out_per_second(url, "fan-out", 20, batches, fan, _PER_BATCH)
    session.record_figure(NAME, names.GATEWAY_FAN_OUT, "/s", [rate])
    for _ in range(batches * 4):
        headers = {"content-type": "application/x-ndjson"}
        wanted = urllib.request.Request(f"{url}/produce?topic=queue", lines, headers)
        urllib.request.urlopen(wanted, timeout=60).read()
    acked = acknowledged_per_second(url, "queue", "lists", 8, batches * 4 * _PER_BATCH)
    session.record_figure(NAME, names.GATEWAY_ACKED, "/s", [acked])
    singly = acknowledged_per_second(url, "queue", "singly", 64, batches * 2 * _PER_BATCH, at_once=1)
    session.record_figure(NAME, names.GATEWAY_ACKED_SINGLY, "/s", [singly])


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
