"""Calls of other nodes' doors: each is answered, whatever becomes of it."""

import asyncio
from typing import Any

import pytest

from millstream.broker.routing.calls import (
    Cancel,
    FindCoordinator,
    NodeCall,
    decode_answer,
    encode_call,
)
from millstream.broker.routing.served_calls import ServedCalls
from millstream.broker.server.memory import MemoryBudget
from millstream.doors import Caller, CoordinatorKind
from millstream.protocol.errors import ErrorCode, KafkaError

ME = Caller(client_id="test")
CALL = FindCoordinator(CoordinatorKind.GROUP, "key")


class Connection:
    """All calls come from it."""


class Call:
    is_abandoned = False

    def __init__(self, source: Connection, correlation_id: int) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.replies: list[bytes] = []

    def reply_body(self, body: list[bytes]) -> None:
        self.replies += body


class NeverDone:
    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def carry_out(self, _caller: Caller, _call: NodeCall[Any]) -> None:
        self.begun.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_call_that_is_cancelled_is_answered_also_where_it_had_not_begun(has_begun: bool) -> None:
    """The caller keeps a place for the answer; a connection has ten thousand of them."""

    async def story() -> list[bytes]:
        local, memory, connection = NeverDone(), MemoryBudget(1000), Connection()
        served: Any = ServedCalls(local, memory)  # type: ignore[arg-type]
        call = Call(connection, 1)
        served.take(memoryview(encode_call(ME, CALL)), call)
        (task,) = served._tasks[connection].values()
        if has_begun:
            await local.begun.wait()
        served.take(memoryview(encode_call(ME, Cancel(1))), Call(connection, 2))
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)
        assert memory.used_bytes == 0
        return call.replies

    (reply,) = asyncio.run(story())
    with pytest.raises(KafkaError) as refused:
        decode_answer(CALL, reply)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
