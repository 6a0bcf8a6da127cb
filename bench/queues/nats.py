"""NATS JetStream, by its text protocol over raw sockets."""

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.machine import Usage, usage
from bench.peers import PeerError, UnsupportedError
from bench.queues import VALUE, WINDOW_ONE_BY_ONE, connect

_UNCONFIRMED = 2_000
_PULL_SECONDS = 60


class NatsQueues:
    deletes_settled = True
    settings = (
        "file storage, work-queue retention, every publish and acknowledgement confirmed; this version syncs its files"
        " every two minutes and has no setting to sync before it answers: less durable than the others"
    )

    def __init__(self, directory: Path) -> None:
        if shutil.which("nats-server") is None:
            raise UnsupportedError("no NATS: Debian's package nats-server is not installed")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._log = (directory / "nats.log").open("w")
        self._process = subprocess.Popen(
            ["nats-server", "-js", "-a", "127.0.0.1", "-p", str(self._port), "-sd", str(directory / "data")],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._producer: Link | None = None
        link = Link(self._port)
        self.name = f"NATS {link.version}"
        link.close()

    def create(self, queue: str) -> None:
        link = Link(self._port)
        stream = {"name": queue, "subjects": [f"in.{queue}"], "storage": "file", "retention": "workqueue"}
        link.ask(f"$JS.API.STREAM.CREATE.{queue}", {**stream, "num_replicas": 1})
        consumer = {"durable_name": "group", "ack_policy": "explicit", "max_ack_pending": 10_000}
        link.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{queue}.group", {"stream_name": queue, "config": consumer})
        link.close()

    def enqueue(self, queue: str, count: int) -> float:
        if self._producer is None:
            self._producer = Link(self._port)
        link = self._producer
        message = b"PUB in.%s %s %d\r\n%s\r\n" % (queue.encode(), link.inbox, len(VALUE), VALUE)
        began = time.perf_counter()
        sent = confirmed = 0
        while confirmed < count:
            room = min(count - sent, _UNCONFIRMED - (sent - confirmed))
            if room >= min(_UNCONFIRMED // 4, count - sent) and room:
                link.socket.sendall(message * room)
                sent += room
            for _, payload in link.messages():
                if b'"error"' in payload:
                    raise PeerError(f"NATS: {payload.decode()}")
                confirmed += 1
        return time.perf_counter() - began

    def consumers(self, queue: str, count: int, *, one_by_one: bool) -> Sequence["NatsConsumer"]:
        if not one_by_one:
            raise UnsupportedError(
                "a JetStream consumer acknowledges each message by itself, or all before it, also those of others"
            )
        return [NatsConsumer(self._port, queue) for _ in range(count)]

    def usage(self) -> Usage:
        return usage(self._process.pid)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._log.close()


class Link:
    """A connection with one subscription, for replies."""

    def __init__(self, port: int) -> None:
        self.socket = connect(port)
        self.inbox = b"_INBOX.%d" % self.socket.getsockname()[1]
        self._received = bytearray()
        while b"\r\n" not in self._received:
            self._received += self.socket.recv(4096)
        line, _, rest = bytes(self._received).partition(b"\r\n")
        self._received = bytearray(rest)
        self.version = json.loads(line[5:])["version"]
        self.socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":false}\r\n')
        self.socket.sendall(b"SUB %s 1\r\nSUB %s.> 2\r\n" % (self.inbox, self.inbox))

    def ask(self, subject: str, request: dict[str, Any]) -> None:
        data = json.dumps(request).encode()
        self.socket.sendall(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), self.inbox, len(data), data))
        for _, payload in self.messages():
            if "error" in (answer := json.loads(payload)):
                raise PeerError(f"NATS: {answer['error']}")
            return

    def messages(self) -> list[tuple[bytes, bytes]]:
        """Where each is to be answered, and what it says; waits for the first."""
        found: list[tuple[bytes, bytes]] = []
        while not found:
            found += self._parse()
            if not found:
                data = self.socket.recv(1 << 20)
                if not data:
                    raise PeerError("NATS closed the connection")
                self._received += data
        return found

    def _parse(self) -> Iterator[tuple[bytes, bytes]]:
        received, at = self._received, 0
        while (end := received.find(b"\r\n", at)) >= 0:
            words = bytes(received[at:end]).split()
            if words[0] in (b"MSG", b"HMSG"):
                size = int(words[-1])
                if len(received) < end + 2 + size + 2:
                    break
                numbers = 2 if words[0] == b"HMSG" else 1
                reply = words[3] if len(words) == 4 + numbers else b""
                yield reply, bytes(received[end + 2 : end + 2 + size])
                at = end + 2 + size + 2
                continue
            if words[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif words[0] == b"-ERR":
                raise PeerError(f"NATS: {words}")
            at = end + 2
        del received[:at]

    def close(self) -> None:
        self.socket.close()


class NatsConsumer:
    """Pulls a window of messages, and the next one when half of them are acknowledged."""

    def __init__(self, port: int, queue: str) -> None:
        self._link = Link(port)
        self.socket = self._link.socket
        self.acknowledged = 0
        self._queue = queue
        self._due = 0

    def begin(self) -> None:
        self._pull(WINDOW_ONE_BY_ONE)

    def readable(self) -> None:
        acks = []
        for reply, payload in self._link.messages():
            if reply.startswith(b"$JS.ACK."):
                acks.append(b"PUB %s %s.a 4\r\n+ACK\r\n" % (reply, self._link.inbox))
            elif not payload:
                # An acknowledgement is confirmed by nothing.
                self.acknowledged += 1
                self._due += 1
        if acks:
            self.socket.sendall(b"".join(acks))
        if self._due >= WINDOW_ONE_BY_ONE // 2:
            self._pull(self._due)
            self._due = 0

    def _pull(self, count: int) -> None:
        wish = b'{"batch":%d,"expires":%d}' % (count, _PULL_SECONDS * 10**9)
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%s.group" % self._queue.encode()
        self.socket.sendall(b"PUB %s %s.m %d\r\n%s\r\n" % (subject, self._link.inbox, len(wish), wish))

    def settle(self) -> None:
        """Each acknowledgement is confirmed."""

    def close(self) -> None:
        self._link.close()
