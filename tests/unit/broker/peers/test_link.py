"""One connection between nodes, against a node that answers, falls silent, goes away and comes back."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
import uvloop

from millstream.broker.peers import link as link_module
from millstream.broker.peers.hello import Hello, Welcome, decode_hello, encode
from millstream.broker.peers.link import PeerLink
from millstream.cluster.raft.entries import Snapshot
from millstream.cluster.raft.envelope import PART_BYTES, Assembler
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import Heartbeat, InstallSnapshot, Message
from millstream.protocol.api import PEER_COMMAND, PEER_HELLO, PEER_QUORUM
from millstream.protocol.errors import ErrorCode, KafkaError

ONE, TWO = MemberKey(1, UUID(int=1)), MemberKey(2, UUID(int=2))
CLUSTER = "c" * 22
LONG = InstallSnapshot(ONE, TWO, 3, Snapshot(9, 3, data=bytes(40 * PART_BYTES)))


class OtherNode:
    """Answers greetings and echoes commands, unless it is told not to."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.is_silent = False
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.greetings = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def go_away(self) -> None:
        assert self._server is not None
        self._server.close()
        self.break_connections()

    def break_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        assembler = Assembler()
        try:
            while True:
                await self.is_reading.wait()
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, _, correlation, _ = struct.unpack_from(">hhih", frame)
                reply = self._answer(key, frame[10:], assembler)
                if reply is not None and not self.is_silent:
                    writer.write(struct.pack(">ii", 4 + len(reply), correlation) + reply)
        except (EOFError, OSError):
            return

    def _answer(self, key: int, body: bytes, assembler: Assembler) -> bytes | None:
        if key == PEER_HELLO:
            self.greetings += 1
            return encode(Welcome(CLUSTER, TWO, decode_hello(body).seeds, (ONE, TWO), self.refusal))
        if key == PEER_QUORUM:
            received = assembler.add(body, CLUSTER)
            if received is not None:
                self.messages.put_nowait(received[1])
            return None
        assert key == PEER_COMMAND
        return body


class Ears:
    def __init__(self) -> None:
        self.welcomes: asyncio.Queue[Welcome] = asyncio.Queue()
        self.lost: asyncio.Queue[MemberKey] = asyncio.Queue()
        self.gone: asyncio.Queue[MemberKey] = asyncio.Queue()


@asynccontextmanager
async def linked(other: OtherNode) -> AsyncIterator[tuple[PeerLink, Ears]]:
    await other.start()
    ears = Ears()
    link = PeerLink(
        f"127.0.0.1:{other.port}",
        lambda: Hello(CLUSTER, ONE, ("a:1",)),
        lambda _link, welcome: ears.welcomes.put_nowait(welcome),
        ears.lost.put_nowait,
        ears.gone.put_nowait,
        elapsed=asyncio.get_running_loop().time,
    )
    task = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(90):
            yield link, ears
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await other.go_away()


def run(story: Callable[[], Coroutine[object, object, None]]) -> None:
    # The node's own loop: it is stricter than the standard one about writing to what is closed.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - the link tells nobody
        await asyncio.sleep(0.01)


def beat(number: int) -> Heartbeat:
    return Heartbeat(ONE, TWO, 1, number, 0)


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may be silent for two seconds, and what is on its way would be lost with the connection."""
    monkeypatch.setattr(link_module, "_SILENCE_SECONDS", 90.0)


@pytest.mark.usefixtures("_patient")
def test_messages_arrive_in_order_and_calls_are_answered() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            assert (await ears.welcomes.get()).member == TWO == link.peer
            for number in range(100):
                assert link.send(CLUSTER, beat(number))
            assert [await other.messages.get() for _ in range(100)] == [beat(number) for number in range(100)]
            assert await link.call(PEER_COMMAND, b"hello", 90) == b"hello"

    run(story)


@pytest.mark.usefixtures("_patient")
def test_a_long_message_lets_short_ones_pass() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            await ears.welcomes.get()
            other.is_reading.clear()
            assert link.send(CLUSTER, LONG)
            await asyncio.sleep(0.1)
            assert not link.send(CLUSTER, LONG), "one at a time"
            assert link.send(CLUSTER, beat(1))
            other.is_reading.set()
            assert [await other.messages.get(), await other.messages.get()] == [beat(1), LONG]

    run(story)


def test_a_long_message_that_does_not_get_through_is_reported() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            await ears.welcomes.get()
            other.is_reading.clear()
            assert link.send(CLUSTER, LONG)
            await asyncio.sleep(0.1)
            await other.go_away()
            assert await ears.lost.get() == TWO

    run(story)


def test_what_nobody_reads_is_bounded() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            await ears.welcomes.get()
            other.is_reading.clear()
            big = InstallSnapshot(ONE, TWO, 3, Snapshot(9, 3, data=bytes(PART_BYTES - 1000)))
            sent = sum(link.send(CLUSTER, big) for _ in range(1000))
            assert 0 < sent < 100

    run(story)


def test_a_node_that_listens_no_more_is_reported_once_and_a_broken_connection_is_not() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            await ears.welcomes.get()
            other.break_connections()
            await ears.welcomes.get()
            assert ears.gone.empty()
            await other.go_away()
            assert await ears.gone.get() == TWO
            await asyncio.sleep(0.2)
            assert ears.gone.empty()
            await other.start()
            await until(lambda: link.peer == TWO)
            assert ears.gone.empty()

    run(story)


def test_for_a_moment_after_a_connection_broke_nobody_knows_of_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The moment lasts until the test ends it, however busy the machine is.
    monkeypatch.setattr(link_module, "_RETRY_SECONDS", 3600.0)
    monkeypatch.setattr(link_module, "_UNCERTAIN_SECONDS", float("inf"))

    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            await ears.welcomes.get()
            assert not link.has_just_lost(2)
            other.break_connections()
            await until(lambda: link.has_just_lost(2))
            assert not link.has_just_lost(3)
            monkeypatch.setattr(link_module, "_UNCERTAIN_SECONDS", 0.0)
            await until(lambda: not link.has_just_lost(2))

    run(story)


def test_a_node_that_is_connected_again_is_known_of() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            await ears.welcomes.get()
            other.break_connections()
            await ears.welcomes.get()
            assert not link.has_just_lost(2)

    run(story)


def test_a_node_that_goes_away_is_found_again() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            await ears.welcomes.get()
            call = asyncio.create_task(link.call(PEER_COMMAND, b"x" * 100, 20))
            other.is_silent = True
            await asyncio.sleep(0.05)
            await other.go_away()
            with pytest.raises(KafkaError, match="lost") as caught:
                await call
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT, "it may have been done"
            await until(lambda: link.peer is None)
            assert not link.send(CLUSTER, beat(1))
            with pytest.raises(KafkaError) as caught:
                await link.call(PEER_COMMAND, b"", 5)
            assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE, "nothing was sent"
            other.is_silent = False
            await other.start()
            await until(lambda: link.peer == TWO)
            assert link.send(CLUSTER, beat(2))
            assert await other.messages.get() == beat(2)

    run(story)


def test_a_silent_connection_is_given_up_and_made_again() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, ears):
            await ears.welcomes.get()
            other.is_silent = True
            await until(lambda: link.peer is None)
            other.is_silent = False
            await until(lambda: link.peer == TWO)

    run(story)


def test_who_refuses_is_not_spoken_to_but_asked_again() -> None:
    async def story() -> None:
        other = OtherNode()
        other.refusal = "not you"
        async with linked(other) as (link, ears):
            assert (await ears.welcomes.get()).refusal == "not you"
            assert link.peer is None
            other.refusal = None
            while (await ears.welcomes.get()).refusal is not None:
                pass
            assert link.peer == TWO

    run(story)


def test_whatever_moment_the_other_end_goes_sending_never_fails() -> None:
    async def story() -> None:
        other = OtherNode()
        async with linked(other) as (link, _ears):
            for _ in range(5):
                await until(lambda: link.peer == TWO)
                await other.go_away()
                while link.peer is not None:
                    link.send(CLUSTER, beat(1))
                    link.send(CLUSTER, LONG)
                    await asyncio.sleep(0)
                await other.start()

    run(story)
