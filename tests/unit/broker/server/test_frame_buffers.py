import pytest

from millstream.broker.server.frame_memory import FrameBuffers


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
