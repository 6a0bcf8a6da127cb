"""Records by their time: every batch is opened in a thread, also where headers name times that no record has."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from millstream.broker.partitions import reads
from millstream.broker.partitions.reads import largest_timestamp, offset_at
from millstream.broker.server.long_work import LongWork
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import HEADER_SIZE, read_header
from millstream.protocol.records import Record, encode_batch, seal_packed, unpack_batch
from millstream.storage.log import PartitionLog
from millstream.storage.lookup import OpenLimit
from support.logs import NOW_MS, append, new_log

Result = TypeVar("Result")


class Threads:
    """They are none, and count what is opened in them; opening a batch elsewhere is a fault."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs = 0
        self._is_in_one = False
        monkeypatch.setattr("millstream.storage.lookup.unpack_batch", self._unpack_batch)

    async def run(self, job: Callable[[], Result]) -> Result:
        self.jobs += 1
        self._is_in_one = True
        try:
            return job()
        finally:
            self._is_in_one = False

    def _unpack_batch(self, batch: memoryview, limit: int) -> Any:
        assert self._is_in_one
        return unpack_batch(batch, limit)


def batch(*times: int, claimed: int | None = None) -> bytes:
    made = encode_batch([Record(at, NOW_MS + time, None, b"v") for at, time in enumerate(times)])
    header = read_header(memoryview(made))
    largest = header.max_timestamp if claimed is None else NOW_MS + claimed
    return seal_packed(header._replace(max_timestamp=largest), made[HEADER_SIZE:])


def in_loop(work: Callable[[LongWork], Coroutine[Any, Any, Result]], threads: Threads) -> Result:
    async def run() -> Result:
        return await work(LongWork(asyncio.get_running_loop(), threads))

    return asyncio.run(run())


def log_of(*batches: bytes) -> PartitionLog:
    log = new_log(message_timestamp_after_max_ms=1 << 50)
    for each in batches:
        append(log, each)
    return log


def test_batches_that_claim_a_time_they_do_not_have_are_all_opened_in_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Threads(monkeypatch)
    log = log_of(batch(0, 1, claimed=90), batch(2, claimed=90), batch(3, 50), batch(60))
    found = in_loop(lambda work: offset_at(work, log, NOW_MS + 50), threads)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 50, 4)
    assert threads.jobs == 3
    assert in_loop(lambda work: offset_at(work, log, NOW_MS + 61), threads) is None
    assert threads.jobs == 5


def test_the_batch_that_a_log_begins_within_is_opened_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(monkeypatch)
    log = log_of(batch(70, 5, 40), batch(20))
    log.advance_start(1)
    assert in_loop(lambda work: largest_timestamp(work, log), threads) == NOW_MS + 40
    assert threads.jobs == 1


def test_a_long_segment_that_the_log_begins_within_is_looked_through_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Threads(monkeypatch)
    long = encode_batch([Record(0, NOW_MS + 30, None, bytes(100_000))])
    log = log_of(batch(90), *[long] * 8, batch(40), *[long] * 8)
    log.advance_start(1)

    async def look(work: LongWork) -> tuple[int, int]:
        return await largest_timestamp(work, log), work.turns

    largest, turns = in_loop(look, threads)
    assert largest == NOW_MS + 40
    assert turns > 3


def test_a_time_behind_which_a_long_segment_has_no_later_one_is_looked_up_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The index of times leads to the first batch: no later one is newer, except the last."""
    threads = Threads(monkeypatch)
    long = encode_batch([Record(0, NOW_MS, None, bytes(100_000))])
    log = log_of(*[long] * 20, batch(40))

    async def look(work: LongWork) -> tuple[int, int]:
        found = await offset_at(work, log, NOW_MS + 30)
        assert found is not None
        return found.offset, work.turns

    offset, turns = in_loop(look, threads)
    assert offset == 20
    assert turns > 5


@pytest.mark.parametrize("limit", [OpenLimit(records=7), OpenLimit(size_bytes=60)])
def test_a_look_up_opens_so_much_and_no_more_however_many_batches_claim_the_time(
    monkeypatch: pytest.MonkeyPatch, limit: OpenLimit
) -> None:
    threads = Threads(monkeypatch)
    monkeypatch.setattr(reads, "OpenLimit", lambda: limit)
    log = log_of(*(batch(0, 1, 2, claimed=90) for _ in range(50)))
    with pytest.raises(KafkaError) as refused:
        in_loop(lambda work: offset_at(work, log, NOW_MS + 50), threads)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert threads.jobs == 3
