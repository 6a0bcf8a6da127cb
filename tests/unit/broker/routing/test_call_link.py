"""The connection for calls to another node, against one that answers as the test says."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from struct import Struct

import pytest

from millstream.broker.routing import call_link
from millstream.broker.routing.call_link import CallLink
from millstream.broker.routing.calls import (
    AnyCall,
    Cancel,
    FindCoordinator,
    decode_call,
    encode_answer,
    encode_refusal,
)
from millstream.doors import Caller, CoordinatorKind
from millstream.protocol.api import NODE_CALL
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.peer_client import Greeting

HEAD = Struct(">hhih")
ME = Caller(client_id="test")


def question(key: str) -> FindCoordinator:
    return FindCoordinator(CoordinatorKind.GROUP, key)


class OtherNode:
    """Takes calls; answers when it is told to."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[int, AnyCall]] = asyncio.Queue()
        self.connections: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    async def next(self) -> tuple[int, AnyCall]:
        return await self.calls.get()

    def answer(self, correlation: int, body: bytes) -> None:
        frame = correlation.to_bytes(4) + body
        self.connections[-1].write(len(frame).to_bytes(4) + frame)

    def hang_up(self) -> None:
        self.connections[-1].transport.abort()

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self.connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        with suppress(OSError, EOFError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                key, _, correlation, _ = HEAD.unpack_from(frame)
                if key == NODE_CALL:
                    self.calls.put_nowait((correlation, decode_call(frame[HEAD.size :])[1]))


def play(story: Callable[[CallLink, OtherNode], Awaitable[None]]) -> None:
    async def main() -> None:
        node = OtherNode()
        link = CallLink(await node.start(), Greeting)
        try:
            async with asyncio.timeout(60):
                await story(link, node)
        finally:
            link.close()
            node.stop()

    asyncio.run(main())


async def refusal(work: Awaitable[object]) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        await work
    return refused.value


def test_answers_may_come_in_any_order() -> None:
    async def story(link: CallLink, node: OtherNode) -> None:
        calls = [asyncio.create_task(link.call(ME, question(key))) for key in "abc"]
        asked = [await node.next() for _ in calls]
        for correlation, call in reversed(asked):
            assert isinstance(call, FindCoordinator)
            node.answer(correlation, encode_answer(ord(call.key)))
        assert await asyncio.gather(*calls) == [97, 98, 99]

    play(story)


def test_a_refusal_says_whether_anything_was_done() -> None:
    async def story(link: CallLink, node: OtherNode) -> None:
        for error in (NotDone(ErrorCode.NOT_COORDINATOR, "elsewhere"), KafkaError(ErrorCode.NOT_COORDINATOR)):
            call = asyncio.create_task(link.call(ME, question("a")))
            correlation, _ = await node.next()
            node.answer(correlation, encode_refusal(error))
            refused = await refusal(call)
            assert (type(refused), refused.code, refused.message) == (type(error), error.code, error.message)

    play(story)


def test_what_cannot_be_sent_was_not_done() -> None:
    async def story() -> None:
        refused = await refusal(CallLink("127.0.0.1:1", Greeting).call(ME, question("a")))
        assert isinstance(refused, NotDone)
        assert refused.code is ErrorCode.BROKER_NOT_AVAILABLE

    asyncio.run(story())


def test_of_a_lost_connection_nobody_knows_what_was_done_and_the_next_call_makes_another() -> None:
    async def story(link: CallLink, node: OtherNode) -> None:
        call = asyncio.create_task(link.call(ME, question("a")))
        await node.next()
        node.hang_up()
        refused = await refusal(call)
        assert not isinstance(refused, NotDone)
        assert refused.code is ErrorCode.REQUEST_TIMED_OUT
        again = asyncio.create_task(link.call(ME, question("b")))
        correlation, _ = await node.next()
        node.answer(correlation, encode_answer(5))
        assert await again == 5

    play(story)


def test_a_connection_on_which_nothing_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_link, "_GRACE_SECONDS", 0.05)

    async def story(link: CallLink, node: OtherNode) -> None:
        assert (await refusal(link.call(ME, question("a")))).code is ErrorCode.REQUEST_TIMED_OUT
        assert (await refusal(link.call(ME, question("b")))).code is ErrorCode.REQUEST_TIMED_OUT
        assert len(node.connections) == 2

    play(story)


def test_the_other_end_is_told_of_a_call_that_nobody_waits_for_and_a_late_answer_is_handed_over() -> None:
    async def story(link: CallLink, node: OtherNode) -> None:
        came_late: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        call = asyncio.create_task(link.call(ME, question("a"), late=came_late.set_result))
        correlation, _ = await node.next()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert await node.next() == (correlation + 1, Cancel(correlation))
        node.answer(correlation, encode_answer(7))
        assert await came_late == 7

    play(story)


def test_a_link_that_is_closed_while_it_connects_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(link: CallLink, node: OtherNode) -> None:
        made: list[asyncio.StreamWriter] = []
        connect = asyncio.open_connection

        async def closed_meanwhile(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await connect(host, port)
            made.append(writer)
            link.close()
            return reader, writer

        monkeypatch.setattr(asyncio, "open_connection", closed_meanwhile)
        refused = await refusal(link.call(ME, question("a")))
        assert isinstance(refused, NotDone)
        assert [each.transport.is_closing() for each in made] == [True]

    play(story)
