"""Requests that are being read, and the memory for them."""

import asyncio
from collections.abc import Iterator

import pytest

from millstream.broker.server.frame_memory import (
    FIRST_ROOM_BYTES,
    SMALL_REQUEST_BYTES,
    Address,
    FrameBuffers,
    FrameMemory,
    IncomingFrame,
)
from millstream.broker.server.memory import MemoryBudget

MB = 1 << 20


class Timer:
    def cancel(self) -> None:
        pass


class Loop:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.due: list[object] = []

    def call_later(self, _seconds: float, callback: object) -> Timer:
        self.due.append(callback)
        return Timer()

    def tick(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()  # type: ignore[operator]


class Node:
    def __init__(self, limit: int) -> None:
        self.loop = Loop()
        self.budget = MemoryBudget(limit)
        self.memory = FrameMemory(self.loop, self.budget, FrameBuffers())  # type: ignore[arg-type]
        self.granted: list[IncomingFrame] = []
        self.stalled: list[IncomingFrame] = []

    def frame(
        self, size: int, address: Address, head: bytes = b"head", *, is_of_node: bool = False
    ) -> IncomingFrame:
        frame = IncomingFrame(
            size,
            memoryview(head),
            address,
            lambda: self.granted.append(frame),
            lambda: self.stalled.append(frame),
            is_of_node=is_of_node,
        )
        return frame

    def begin(self, size: int, address: Address, head: bytes = b"head") -> IncomingFrame:
        frame = self.frame(size, address, head)
        self.memory.begin(frame)
        return frame

    def fill(self, frame: IncomingFrame) -> bool:
        """All that there is room for comes; False when the frame then waits for more room."""
        frame.filled += frame.missing
        return frame.filled == frame.size or self.memory.grow(frame)

    def fill_in_turn(self, frames: list[IncomingFrame]) -> None:
        """Until each waits or is whole."""
        going_on = frames
        while going_on:
            for frame in going_on:
                self.fill(frame)
            going_on = [each for each in frames if not each.wanted_bytes and each.filled < each.size]


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node(64 * MB)
    yield node
    assert node.budget.used_bytes >= 0


def test_a_request_begins_with_little_room_and_gets_more_as_it_comes(node: Node) -> None:
    frame = node.begin(10 * MB, Address())
    rooms = [len(frame.buffer)]
    while frame.filled < frame.size:
        assert node.fill(frame)
        rooms.append(len(frame.buffer))
    assert rooms[:4] == [FIRST_ROOM_BYTES, SMALL_REQUEST_BYTES, 2 * MB, 4 * MB]
    assert bytes(frame.buffer[:4]) == b"head"
    assert node.budget.used_bytes == frame.address.used_bytes == len(frame.buffer)
    node.memory.end(frame)
    assert node.budget.used_bytes == frame.address.used_bytes == 0


def test_what_has_come_already_is_worth_more_room_at_once(node: Node) -> None:
    frame = node.begin(MB, Address(), bytes(40_000))
    assert len(frame.buffer) == MB
    assert frame.filled == 40_000


def test_who_has_sent_a_whole_request_before_begins_with_more_room(node: Node) -> None:
    frame = node.frame(10 * MB, Address())
    frame.is_proven = True
    assert node.memory.begin(frame)
    assert len(frame.buffer) == MB


def test_announcing_reserves_the_first_room_only(node: Node) -> None:
    address = Address()
    for _ in range(100):
        node.begin(60 * MB, address)
    assert node.budget.used_bytes == 100 * FIRST_ROOM_BYTES


def test_small_requests_of_the_same_address_pass_large_ones_that_wait(node: Node) -> None:
    address = Address()
    large = [node.begin(30 * MB, address) for _ in range(4)]
    node.fill_in_turn(large)
    assert node.memory.waiting == 4
    small = node.begin(MB, address)
    assert node.fill(small)
    assert not small.wanted_bytes


def test_one_address_leaves_memory_to_others(node: Node) -> None:
    greedy, modest = Address(), Address()
    for _ in range(2000):
        node.begin(MB, greedy)
    assert greedy.used_bytes <= 48 * MB
    other = node.begin(MB, modest)
    assert node.fill(other)
    assert not other.wanted_bytes


def test_who_waits_goes_on_when_memory_is_given_back(node: Node) -> None:
    node.budget.take(64 * MB)
    frame = node.begin(MB, Address())
    assert frame.wanted_bytes
    node.budget.give_back(10 * MB)
    assert node.granted == [frame]
    assert not frame.wanted_bytes


def test_what_a_node_forwards_does_not_wait_for_what_waits_for_nodes(node: Node) -> None:
    """Both nodes of a pair may be full of requests that the other one has to answer."""
    held, here = 64 * MB, Address()
    node.budget.take(held)
    waiting = [node.begin(MB, here) for _ in range(100)]
    assert all(frame.wanted_bytes for frame in waiting)
    forwarded = [node.frame(MB, here, is_of_node=True) for _ in range(20)]
    for frame in forwarded:
        node.memory.begin(frame)
    node.fill_in_turn(forwarded)
    read = [frame for frame in forwarded if frame.filled == frame.size]
    assert 10 < len(read) < 16, "nodes have a quarter for themselves, and not more"
    for frame in read:
        node.memory.end(frame)
    rest = [frame for frame in forwarded if frame not in read]
    node.fill_in_turn(rest)
    assert all(frame.filled == frame.size for frame in rest)
    for frame in rest:
        node.memory.end(frame)
    assert node.budget.used_bytes == held, "what came from clients still waits"


def test_when_nothing_moves_one_goes_on_beyond_the_limit_and_the_others_after_it(node: Node) -> None:
    frames = [node.begin(40 * MB, Address()) for _ in range(3)]
    node.fill_in_turn(frames)
    assert all(frame.wanted_bytes for frame in frames)
    finished: list[IncomingFrame] = []
    for _ in range(20):
        node.loop.tick()
        for frame in frames:
            while frame not in finished and not frame.wanted_bytes and node.fill(frame):
                if frame.filled == frame.size:
                    finished.append(frame)
                    node.memory.end(frame)
                    break
    assert len(finished) == 3
    assert node.stalled == []
    assert node.budget.used_bytes == 0


def test_who_sends_nothing_is_given_up_only_when_others_wait(node: Node) -> None:
    stalled = node.begin(40 * MB, Address())
    for _ in range(4):
        node.fill(stalled)
    for _ in range(50):
        node.loop.tick()
    assert node.stalled == [], "no one waits"
    node.budget.take(64 * MB)
    waiting = [node.begin(MB, Address()) for _ in range(2)]
    assert all(each.wanted_bytes for each in waiting)
    for _ in range(50):
        node.loop.tick()
    assert stalled in node.stalled
    assert waiting[1] not in node.stalled, "it waits itself"


def test_who_leaves_while_it_waits_is_forgotten(node: Node) -> None:
    node.budget.take(64 * MB)
    frame = node.begin(MB, Address())
    node.memory.end(frame)
    assert node.memory.waiting == 0
    node.budget.give_back(64 * MB)
    assert node.granted == []
    assert node.budget.used_bytes == 0


def test_a_request_larger_than_everything_is_read_alone() -> None:
    node = Node(MB)
    frame = node.begin(5 * MB, Address())
    while frame.filled < frame.size:
        assert node.fill(frame)
    node.memory.end(frame)
    assert node.budget.used_bytes == 0


def test_the_loop_is_the_real_one_too() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        memory = FrameMemory(loop, MemoryBudget(MB), FrameBuffers())
        memory.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    "size", [1, 4096, 4097, 65_536, 65_537, 1_000_000, 8 << 20, (8 << 20) + 1, 100 << 20]
)
def test_a_buffer_has_room_for_its_request_and_counts_for_what_it_is(size: int) -> None:
    buffers = FrameBuffers()
    buffer = buffers.take(size)
    assert size <= len(buffer) == buffers.room_for(size)
    assert len(buffer) <= max(2 * size, 4096)


def test_buffers_are_used_again() -> None:
    buffers = FrameBuffers()
    first = buffers.take(100_000)
    buffers.give_back(first)
    assert buffers.take(70_000) is first
    assert buffers.take(70_000) is not first


def test_what_is_kept_is_bounded() -> None:
    buffers = FrameBuffers()
    taken = [buffers.take(8 << 20) for _ in range(8)]
    for buffer in taken:
        buffers.give_back(buffer)
    again = [buffers.take(8 << 20) for _ in range(8)]
    assert sum(any(each is buffer for buffer in taken) for each in again) == 4


def test_giants_are_not_kept() -> None:
    buffers = FrameBuffers()
    giant = buffers.take(50 << 20)
    buffers.give_back(giant)
    assert buffers.take(50 << 20) is not giant
