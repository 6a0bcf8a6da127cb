"""How long the event loop stands still while one client asks for as much as it may: `python -m bench.stall`.

A probe asks for ApiVersions every few milliseconds on a connection of its own, while another client sends the largest
request that an API takes (protocol/limits.py), or one that is beyond the limit. Printed is the longest time the probe
waited, by API, and the most processor time that the node used during one such wait: what the wait would have been at
most on a machine with nothing else to do. Nothing here is judged.
"""

import argparse
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.rawclient import call, string
from millstream.protocol.api import API_VERSIONS, APIS, Api
from millstream.protocol.limits import LIMITS

Body = Callable[[int], bytes]

_PROBE_SECONDS = 0.002
_ANSWER_SECONDS = 120.0


def _names(count: int) -> bytes:
    return struct.pack(">i", count) + b"".join(string(f"name-{number}") for number in range(count))


def _partitions(count: int, element: bytes) -> bytes:
    """One topic with so many partitions."""
    return struct.pack(">i", 1) + string("stall") + struct.pack(">i", count) + element * count


def _fetch(count: int) -> bytes:
    head = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
    return head + _partitions(count, struct.pack(">iqi", 0, 0, 1 << 20))


def _create(count: int) -> bytes:
    topics = b"".join(
        string(f"bad name {number}") + struct.pack(">ihii", 1, 1, 0, 0) for number in range(count)
    )
    return struct.pack(">i", count) + topics + struct.pack(">i?", 30_000, False)


def _join(count: int) -> bytes:
    protocols = b"".join(string(f"p{number}") + struct.pack(">i", 1) + b"m" for number in range(count))
    return (
        string("stall-group") + struct.pack(">ii", 10_000, 10_000) + string("") + string("consumer")
        + struct.pack(">i", count) + protocols
    )  # fmt: skip


def _produce(count: int) -> bytes:
    return struct.pack(">hhi", -1, -1, 30_000) + _partitions(count, struct.pack(">ii", 0, 0))


def _commit(count: int) -> bytes:
    partition = struct.pack(">iq", 0, 1) + string("")
    return (
        string("stall-group")
        + struct.pack(">i", -1)
        + string("")
        + struct.pack(">q", -1)
        + _partitions(count, partition)
    )


# By API: the version, whose encoding is the old one, and the body with so many elements.
REQUESTS: dict[str, tuple[int, Body]] = {
    "produce": (7, _produce),
    "fetch": (4, _fetch),
    "list_offsets": (1, lambda count: struct.pack(">i", -1) + _partitions(count, struct.pack(">iq", 0, -1))),
    "metadata": (4, lambda count: _names(count) + b"\0"),
    "offset_commit": (2, _commit),
    "offset_fetch": (5, lambda count: string("stall-group") + _partitions(count, struct.pack(">i", 0))),
    "join_group": (1, _join),
    "describe_groups": (2, _names),
    "delete_groups": (1, _names),
    "create_topics": (2, _create),
    "delete_topics": (1, lambda count: _names(count) + struct.pack(">i", 30_000)),
    "delete_records": (0, lambda c: _partitions(c, struct.pack(">iq", 0, 0)) + struct.pack(">i", 1000)),
    "offset_for_leader_epoch": (2, lambda count: _partitions(count, struct.pack(">iii", 0, -1, 0))),
    "describe_configs": (
        1,
        lambda c: struct.pack(">i", c) + (b"\2" + string("stall") + struct.pack(">i", -1)) * c + b"\0",
    ),
    "describe_log_dirs": (1, lambda count: _partitions(count, struct.pack(">i", 0))),
    "create_partitions": (
        0,
        lambda c: (
            struct.pack(">i", c)
            + b"".join(string(f"t{n}") + struct.pack(">ii", 2, -1) for n in range(c))
            + struct.pack(">i?", 1000, False)
        ),
    ),
    "elect_leaders": (0, lambda c: _partitions(c, struct.pack(">i", 0)) + struct.pack(">i", 1000)),
}


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


@contextmanager
def _node() -> Iterator[tuple[int, int]]:
    """A node's port and process."""
    with tempfile.TemporaryDirectory(prefix="millstream-stall-") as data:
        port = _free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream", "serve", "--data", data, "--listen", f"127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(port)
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _await(port: int) -> None:
    for _ in range(200):
        try:
            with _connect(port) as connection:
                call(connection, API_VERSIONS, 0, b"")
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the node did not come up")


def _prepare(port: int) -> None:
    """A topic to ask for, and the topic of groups."""
    with _connect(port) as connection:
        call(connection, 3, 4, struct.pack(">i", 1) + string("stall") + b"\1")
        call(connection, 10, 0, string("stall-group"))
        time.sleep(1)
        # Modules are loaded with their first request, which is no part of what is measured.
        for name, (version, body) in REQUESTS.items():
            _ask(connection, _api(name), version, body(1))


def _api(name: str) -> Api:
    return next(api for api in APIS.values() if api.name == name)


def _ask(connection: socket.socket, api: Api, version: int, body: bytes) -> str:
    try:
        answer = call(connection, api.key, version, body)
    except OSError:
        return "closed"
    return f"{len(answer):,} bytes"


def _peak_mb(process: int) -> float:
    with open(f"/proc/{process}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmHWM"].split()[0]) / 1024


def measure(port: int, process: int, name: str, elements: int) -> tuple[Probe, float, str]:
    """What the probe saw, how long the answer took, and what it was."""
    version, body = REQUESTS[name]
    sent = body(elements)
    probe = Probe(port, process)
    probe.start()
    began = time.perf_counter()
    with _connect(port) as connection:
        answer = _ask(connection, _api(name), version, sent)
    took = time.perf_counter() - began
    probe.end()
    return probe, took, answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stall", description=__doc__.splitlines()[0])
    parser.add_argument("apis", nargs="*", help=f"which ones: {', '.join(REQUESTS)}")
    parser.add_argument(
        "--elements", type=int, help="elements of each request; the API's limit when not given"
    )
    options = parser.parse_args()
    with _node() as (port, process):
        _prepare(port)
        columns = f"{'API':<24} {'elements':>9} {'longest wait':>13} {'of it CPU':>12}"
        print(f"{columns} {'answered in':>12} {'peak':>8}  answer")
        for name in options.apis or REQUESTS:
            # One of them is the topic.
            limit = LIMITS[name]
            elements = options.elements or min(limit.elements - 1, *limit.arrays.values(), limit.elements)
            probe, took, answer = measure(port, process, name, elements)
            print(
                f"{name:<24} {elements:>9,} {probe.longest * 1000:>10.1f} ms {probe.longest_cpu * 1000:>9.1f} ms"
                f" {took:>10.2f} s {_peak_mb(process):>5.0f} MB  {answer}",
                flush=True,
            )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
