"""RabbitMQ's quorum queues, by AMQP 0-9-1 over raw sockets."""

import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.machine import Usage, usage
from bench.peers import PeerError, UnsupportedError
from bench.queues import VALUE, WINDOW_BATCHES, WINDOW_ONE_BY_ONE, connect
from millstream.runtime.ports import ReservedPorts

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"
_DELIVER, _ACK, _NACK = (60, 60), (60, 80), (60, 120)
_UNCONFIRMED = 2_000


class RabbitQueues:
    deletes_settled = True
    settings = (
        "quorum queue of one node: messages and acknowledgements are synced to disk; publishes are confirmed,"
        " acknowledgements are not: the last one counts when a request sent after it is answered"
    )

    def __init__(self, directory: Path) -> None:
        if shutil.which("rabbitmq-server") is None:
            raise UnsupportedError("no RabbitMQ: Debian's package rabbitmq-server is not installed")
        with ReservedPorts(3) as free:
            self._port, distribution, names = free.ports
        self._environment = {
            **os.environ,
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"bench{self._port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
        }
        (directory / "enabled_plugins").write_text("[].\n")
        # As root Debian's wrapper would change to a user who may not write here.
        server = next(Path("/usr/lib/rabbitmq").glob("lib/*/sbin/rabbitmq-server"), None)
        if server is None:
            raise UnsupportedError("RabbitMQ is installed in another way than Debian's")
        self._log = (directory / "rabbitmq.log").open("w")
        self._process = subprocess.Popen(
            [str(server)], env=self._environment, stdout=self._log, stderr=subprocess.STDOUT
        )
        self._directory = directory
        self._producer: Channel | None = None
        self._published = 0
        channel = Channel(self._port, self._check)
        self.name = f"RabbitMQ {channel.version}"
        channel.close()

    def _check(self) -> None:
        if self._process.poll() is not None:
            log = (self._directory / "rabbitmq.log").read_text()
            raise UnsupportedError(f"RabbitMQ ended: {log[-300:]}")

    def create(self, queue: str) -> None:
        channel = Channel(self._port)
        channel.declare(queue)
        channel.close()

    def enqueue(self, queue: str, count: int) -> float:
        if self._producer is None:
            self._producer = Channel(self._port)
            self._producer.call((85, 10), b"\0", (85, 11))
        channel = self._producer
        publish = _method(60, 40, b"\0\0\0" + _short(queue) + b"\0")
        header = _frame(_HEADER, struct.pack(">HHQHB", 60, 0, len(VALUE), 0x1000, 2))
        message = publish + header + _frame(_BODY, VALUE)
        began = time.perf_counter()
        sent = confirmed = 0
        # Tags go on from one call to the next; single confirmations may come out of order.
        below, single = self._published, set[int]()
        while confirmed < count:
            room = min(count - sent, _UNCONFIRMED - (sent - confirmed))
            if room >= min(_UNCONFIRMED // 4, count - sent) and room:
                channel.socket.sendall(message * room)
                sent += room
            for kind, payload in channel.frames():
                method = _of(payload) if kind == _METHOD else None
                if method == _ACK:
                    tag, multiple = struct.unpack_from(">QB", payload, 4)
                    if multiple:
                        below = max(below, tag)
                        single = {each for each in single if each > below}
                    else:
                        single.add(tag)
                elif method == _NACK:
                    raise PeerError("RabbitMQ refused a message")
            confirmed = below - self._published + len(single)
        self._published += count
        return time.perf_counter() - began

    def consumers(self, queue: str, count: int, *, one_by_one: bool) -> Sequence["RabbitConsumer"]:
        return [RabbitConsumer(self._port, queue, one_by_one=one_by_one) for _ in range(count)]

    def usage(self) -> Usage:
        return usage(self._process.pid)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # Erlang's register of nodes goes on by itself.
        subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True, check=False)
        self._log.close()


class Channel:
    """A connection with one channel."""

    def __init__(self, port: int, check: Callable[[], None] = lambda: None) -> None:
        self.socket = connect(port, check=check)
        self._received = bytearray()
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        start = self._expect((10, 10))
        version = start.partition(b"\x07versionS")[2]
        self.version = version[4 : 4 + int.from_bytes(version[:4], "big")].decode()
        login = _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US")
        self._send(0, 10, 11, _long(b"") + login)
        tune = self._expect((10, 30))
        # Its limits, and no heartbeats.
        self._send(0, 10, 31, tune[4:10] + b"\0\0")
        self._send(0, 10, 40, _short("/") + b"\0\0")
        self._expect((10, 41))
        self.call((20, 10), b"\0", (20, 11))

    def declare(self, queue: str) -> None:
        arguments = _short("x-queue-type") + b"S" + _long(b"quorum")
        self.call((50, 10), b"\0\0" + _short(queue) + b"\x02" + _long(arguments), (50, 11))

    def call(self, method: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> bytes:
        self._send(1, *method, arguments)
        return self._expect(answer)

    def _send(self, channel: int, group: int, number: int, arguments: bytes) -> None:
        self.socket.sendall(_method(group, number, arguments, channel))

    def _expect(self, method: tuple[int, int]) -> bytes:
        while True:
            for kind, payload in self.frames(1):
                if kind == _METHOD and _of(payload) == method:
                    return payload
                if kind == _METHOD and _of(payload) in ((10, 50), (20, 40)):
                    raise PeerError(f"RabbitMQ closed: {payload[4:].decode(errors='replace')}")

    def frames(self, most: int = 1 << 30) -> list[tuple[int, bytes]]:
        """Those that are there; waits for the first."""
        found: list[tuple[int, bytes]] = []
        received = self._received
        while not found:
            at = 0
            while len(received) - at >= 7 and len(found) < most:
                size = struct.unpack_from(">I", received, at + 3)[0]
                if len(received) - at < size + 8:
                    break
                found.append((received[at], bytes(received[at + 7 : at + 7 + size])))
                at += size + 8
            del received[:at]
            if not found:
                data = self.socket.recv(1 << 20)
                if not data:
                    raise PeerError("RabbitMQ closed the connection")
                received += data
        return found

    def close(self) -> None:
        self.socket.close()


class RabbitConsumer:
    def __init__(self, port: int, queue: str, *, one_by_one: bool) -> None:
        self._channel = Channel(port)
        self.socket = self._channel.socket
        self.acknowledged = 0
        self._one_by_one = one_by_one
        self._queue = queue

    def begin(self) -> None:
        window = WINDOW_ONE_BY_ONE if self._one_by_one else 2 * WINDOW_BATCHES
        self._channel.call((60, 10), struct.pack(">IHB", 0, window, 0), (60, 11))
        arguments = b"\0\0" + _short(self._queue) + _short("") + b"\0" + _long(b"")
        self.socket.sendall(_method(60, 20, arguments))

    def readable(self) -> None:
        tags = [
            struct.unpack_from(">Q", payload, 4 + 1 + payload[4])[0]
            for kind, payload in self._channel.frames()
            if kind == _METHOD and _of(payload) == _DELIVER
        ]
        if not tags:
            return
        # In batches, what has come together is acknowledged together.
        settled = [(tag, 0) for tag in tags] if self._one_by_one else [(tags[-1], 1)]
        self.socket.sendall(b"".join(_method(*_ACK, struct.pack(">QB", *each)) for each in settled))
        self.acknowledged += len(tags)

    def settle(self) -> None:
        self._channel.call((60, 10), struct.pack(">IHB", 0, 1, 0), (60, 11))

    def close(self) -> None:
        self.socket.close()


def _of(payload: bytes) -> tuple[int, int]:
    group, number = struct.unpack_from(">HH", payload)
    return group, number


def _frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + _END


def _method(group: int, number: int, arguments: bytes, channel: int = 1) -> bytes:
    return _frame(_METHOD, struct.pack(">HH", group, number) + arguments, channel)


def _short(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
