"""Broken requests in front of a node: it survives, nothing of it fails, and a well-behaved client notices nothing."""

import random
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from millstream.protocol.api import Api
from support.fuzzing import ROUNDS, SEED, chance_for, every_version, mutated, valid_body
from support.node import NodeProcess
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    frame,
    produce,
    request_header,
)

CASES = 10
STREAMS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(
        tmp_path_factory.mktemp("fuzzed"),
        settings={"performance.max_in_flight_bytes": "32MB", "cluster.max_partitions": "2000"},
    )
    try:
        yield process.start()
        process.stop()
    finally:
        process.close()


@pytest.fixture(scope="module")
def witness(node: NodeProcess) -> Iterator[Callable[[], None]]:
    """A client on a connection of its own, which must be able to write and to read what it wrote."""
    with RawClient(node.listen) as client:
        topic = create_topic(client, "witness")
        written = 0

        def check() -> None:
            nonlocal written
            assert produce(client, topic, batch_of(b"w")).base_offset == written
            (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, written)))
            assert (fetched.error_code, len(fetched.records)) == (0, len(batch_of(b"w")))
            written += 1

        for name in ("fuzz-0", "fuzz-1"):
            create_topic(client, name, partitions=2)
        yield check


def failures(node: NodeProcess) -> list[str]:
    """What went wrong in the node, as the last lines of each traceback."""
    entries = [*node.log_entries("request failed"), *node.log_entries("task failed")]
    return [" | ".join(str(entry.get("exception", entry)).splitlines()[-3:]) for entry in entries]


class Fuzzer:
    """Sends, ignores the answers, and connects again when the node has had enough."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._client: RawClient | None = None

    def send(self, data: bytes) -> None:
        if self._client is None:
            self._client = RawClient(self._node.listen)
        try:
            self._client.send_bytes(data)
            while select.select([self._client.socket], [], [], 0)[0]:
                if not self._client.socket.recv(1 << 16):
                    self.hang_up()
                    return
        except OSError:
            self.hang_up()

    def finish(self) -> None:
        """Send nothing more and wait until the node has read everything and closed its side too."""
        if self._client is None:
            return
        try:
            self._client.socket.shutdown(socket.SHUT_WR)
            while self._client.socket.recv(1 << 16):
                pass
        except TimeoutError:
            raise AssertionError("the node neither answers nor closes the connection") from None
        except OSError:
            pass
        self.hang_up()

    def hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


@pytest.mark.parametrize(
    ("api", "version"), list(every_version()), ids=lambda each: getattr(each, "name", f"v{each}")
)
def test_mutated_requests_of_every_version(
    node: NodeProcess, witness: Callable[[], None], api: Api, version: int
) -> None:
    chance = chance_for(api, version)
    fuzzer = Fuzzer(node)
    for number in range(CASES * ROUNDS):
        header = request_header(api, version, number)
        body = valid_body(chance, api, version)
        if chance.random() < 0.2:
            header = mutated(chance, header)
        request = frame(header + mutated(chance, body))
        if chance.random() < 0.1:
            request = mutated(chance, request)
        fuzzer.send(request)
        # Mostly on a connection of its own: what follows a request that was refused is not read.
        if chance.random() < 0.8:
            fuzzer.finish()
        elif chance.random() < 0.2:
            fuzzer.hang_up()
    fuzzer.finish()
    witness()
    assert set(failures(node)) == set()


def test_streams_of_requests_cut_and_mended_anywhere(node: NodeProcess, witness: Callable[[], None]) -> None:
    chance = random.Random(SEED)
    versions = list(every_version())
    for _ in range(STREAMS * ROUNDS):
        requests = []
        for number in range(chance.randrange(1, 12)):
            api, version = chance.choice(versions)
            requests.append(frame(request_header(api, version, number) + valid_body(chance, api, version)))
        stream = b"".join(requests)
        if chance.random() < 0.5:
            stream = mutated(chance, stream)
        fuzzer = Fuzzer(node)
        while stream:
            size = chance.choice((1, 3, 50, 1000, 70_000))
            fuzzer.send(stream[:size])
            stream = stream[size:]
        if chance.random() < 0.9:
            fuzzer.finish()
        else:
            fuzzer.hang_up()
    witness()
    assert set(failures(node)) == set()
