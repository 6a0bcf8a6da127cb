"""How long the event loop stands still while one client asks for as much as it may: `python -m bench.stall`.

A probe asks for ApiVersions every few milliseconds on a connection of its own, while another client sends the largest
request that an API takes (protocol/limits.py), the largest batch that the HTTP door takes, or what an MQTT client may
ask for at once. Printed is the longest time the probe waited, and the most processor time that the node used during one
such wait: what the wait would have been at most on a machine with nothing else to do. Nothing here is judged.
"""

import argparse
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.rawclient import call, receive, string
from bench.stall_doors import DOORS
from bench.stall_requests import all_requests
from millstream.protocol.api import API_VERSIONS, Api
from millstream.runtime.ports import ReservedPorts
from millstream.testing.processes import NodeProcess

_PROBE_SECONDS = 0.002
_ANSWER_SECONDS = 120.0


class Probe(threading.Thread):
    """Asks again and again; remembers the longest wait."""

    def __init__(self, port: int, process: int) -> None:
        super().__init__(daemon=True)
        self._connection = _connect(port)
        self._ended = threading.Event()
        # The clock of another process's processor time, as clock_getcpuclockid(3) makes it.
        self._clock = (~process << 3) | 2
        self.longest = 0.0
        self.longest_cpu = 0.0

    def run(self) -> None:
        while not self._ended.wait(_PROBE_SECONDS):
            began, cpu = time.perf_counter(), time.clock_gettime(self._clock)
            call(self._connection, API_VERSIONS, 0, b"")
            self.longest = max(self.longest, time.perf_counter() - began)
            self.longest_cpu = max(self.longest_cpu, time.clock_gettime(self._clock) - cpu)

    def end(self) -> None:
        self._ended.set()
        self.join()


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Node(NamedTuple):
    kafka: int
    http: int
    mqtt: int
    process: int


@contextmanager
def _node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="millstream-stall-") as data:
        with ReservedPorts(3) as reserved:
            kafka, http, mqtt = reserved.ports
            options = zip(("--listen", "--http", "--mqtt"), reserved.addresses, strict=True)
            command = [sys.executable, "-m", "millstream", "serve", "--data", data, "--log-format", "json"]
            command += [word for option in options for word in option]
            node = NodeProcess("the node", Path(data).with_suffix(".log"), command)
            node.launch()
            node.wait_until_ready()
        try:
            yield Node(kafka, http, mqtt, node.pid)
        finally:
            node.stop()
            node.log_file.unlink()


def _prepare(port: int) -> None:
    """A topic to ask for, and the topic of groups."""
    with _connect(port) as connection:
        call(connection, 3, 4, struct.pack(">i", 1) + string("stall") + b"\1")
        call(connection, 10, 0, string("stall-group"))
        time.sleep(1)


def _ask(port: int, api: Api, version: int, body: bytes) -> str:
    head = struct.pack(">hhi", api.key, version, 1) + string("stall") + b"\0" * api.is_flexible(version)
    try:
        with _connect(port) as connection:
            connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
            (size,) = struct.unpack(">i", receive(connection, 4))
            receive(connection, size)
    except OSError:
        return "closed"
    return f"{size:,} bytes"


def _peak_mb(process: int) -> float:
    with open(f"/proc/{process}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmHWM"].split()[0]) / 1024


def _measure(node: Node, name: str, elements: int, ask: Callable[[], str]) -> None:
    probe = Probe(node.kafka, node.process)
    probe.start()
    began = time.perf_counter()
    answer = ask()
    took = time.perf_counter() - began
    probe.end()
    print(
        f"{name:<38} {elements:>9,} {probe.longest * 1000:>10.1f} ms {probe.longest_cpu * 1000:>9.1f} ms"
        f" {took:>10.2f} s {_peak_mb(node.process):>5.0f} MB  {answer}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stall", description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", help="which ones: names of APIs, http, mqtt; all when none is given"
    )
    parser.add_argument(
        "--elements", type=int, help="elements of each request; the API's limit when not given"
    )
    options = parser.parse_args()
    with _node() as node:
        _prepare(node.kafka)
        columns = f"{'request':<38} {'elements':>9} {'longest wait':>13} {'of it CPU':>12}"
        print(f"{columns} {'answered in':>12} {'peak':>8}  answer")
        for api, shape, version, body, most in all_requests():
            if options.names and api.name not in options.names:
                continue
            # Modules are loaded with their first request, which is no part of what is measured.
            _ask(node.kafka, api, version, body(1))
            elements = options.elements or most
            sent = body(elements)
            _measure(node, f"{api.name} {shape}", elements, partial(_ask, node.kafka, api, version, sent))
        for door, name, elements, request in DOORS:
            if not options.names or door in options.names:
                port = getattr(node, door)
                request(port, 1)
                _measure(node, f"{door} {name}", elements, partial(request, port, elements))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
