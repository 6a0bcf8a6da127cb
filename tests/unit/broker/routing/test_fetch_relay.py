"""A client's fetch over several leaders, on virtual time: none of them waits for another."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from millstream.broker.routing.fetch import FetchRelay
from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import (
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_reply,
)
from millstream.protocol.replica_fetch import VERSION
from millstream.testing.simulator.loop import SimulatedLoop

TOPIC_ID = UUID(int=7)
HERE, READY, SILENT = 1, 2, 3
RECORDS = b"records"


class Relay:
    """Partition 0 is led by one node, partition 1 by the other; `answers` are what they say, and after how long."""

    node_id = HERE
    is_only_node = False

    def __init__(self, loop: Any, answers: dict[int, tuple[float, bytes]]) -> None:
        self.loop = loop
        self._answers = answers
        self.image = SimpleNamespace(
            topic=lambda _name: SimpleNamespace(topic_id=TOPIC_ID, partitions=[None, None])
        )
        self.targets = SimpleNamespace(leader=lambda _topic, index: (READY, SILENT)[index])
        memory = SimpleNamespace(free_bytes=1 << 20, take=lambda _size: None, give_back=lambda _size: None)
        self.server = SimpleNamespace(reply_memory=memory)
        self.relays = SimpleNamespace(
            fetch_sessions=SimpleNamespace(open=lambda _fetch, **_options: None),
            machine=SimpleNamespace(clock=SimpleNamespace(monotonic=loop.time)),
        )

    def is_proxied(self, _topic: str) -> bool:
        return True

    def drop_lane(self, _node: int, _kind: str) -> None: ...

    def send(self, node: int, *arguments: Any) -> None:
        answered: Callable[[memoryview], None] = arguments[4]
        seconds, records = self._answers[node]
        found = FetchedPartition(TOPIC_ID.bytes, int(node == SILENT), ErrorCode.NONE, 5, 5, 0, records)
        reply = b"".join(bytes(part) for part in encode_fetch_reply(VERSION, [found]))
        self.loop.call_later(seconds, answered, memoryview(b"\0" + reply))


def fetch(answers: dict[int, tuple[float, bytes]], max_wait_ms: int) -> tuple[float, list[tuple[int, int]]]:
    """When a fetch of both partitions is answered, and with which errors and how many bytes."""
    loop = SimulatedLoop()
    told: list[tuple[float, FetchAnswer]] = []

    async def story() -> None:
        answered = loop.create_future()

        def answer(found: FetchAnswer) -> None:
            told.append((loop.time(), found))
            answered.set_result(None)

        slot = SimpleNamespace(answer=answer)
        call: Any = SimpleNamespace(version=12, reply_later=lambda **_: slot)
        relay: Any = Relay(loop, answers)
        relayed = FetchRelay(relay)
        wanted = [FetchPartition(index, -1, 0, -1, -1, 1 << 20) for index in (0, 1)]
        request = FetchRequest(-1, max_wait_ms, 1, 1 << 20, 0, 0, -1, [FetchTopic("t", wanted)], [], "")
        relayed._begin(call, None, request)
        await answered
        relayed.close()

    loop.run(story())
    ((at, found),) = told
    return at, [(each.error, len(each.records)) for each in found.partitions]


def test_a_silent_leader_does_not_keep_what_others_have_found() -> None:
    """They were asked where their partitions stand, and all waited 5.1 s for the one that did not say."""
    at, found = fetch({READY: (0.01, RECORDS), SILENT: (1000.0, b"")}, max_wait_ms=500)
    assert found == [(ErrorCode.NONE, len(RECORDS)), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
    assert at <= 1.5


def test_a_leader_that_is_slow_is_waited_for() -> None:
    """Also by a client that does not want to wait for new records: an error would send it to look for leaders."""
    both = [(ErrorCode.NONE, len(RECORDS)), (ErrorCode.NONE, len(RECORDS))]
    for max_wait_ms in (0, 500):
        assert fetch({READY: (0.01, RECORDS), SILENT: (0.4, RECORDS)}, max_wait_ms)[1] == both
    assert fetch({READY: (0.01, RECORDS), SILENT: (3.0, RECORDS)}, 5_000)[1] == both


def test_where_nothing_is_found_the_silent_one_is_waited_for() -> None:
    _, found = fetch({READY: (0.01, b""), SILENT: (3.0, RECORDS)}, max_wait_ms=500)
    assert found == [(ErrorCode.NONE, 0), (ErrorCode.NONE, len(RECORDS))]
