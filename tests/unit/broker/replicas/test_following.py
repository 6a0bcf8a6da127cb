"""What a follower does with a leader's reply."""

from types import SimpleNamespace
from typing import Any

from millstream.broker.replicas import following as following_module
from millstream.broker.replicas.following import Following
from millstream.protocol.fetch import FetchedPartition
from millstream.protocol.records import Record
from support.partition_files import batch_of


class Log:
    """A topic that is flushed later; its log has room for `most` batches in one turn."""

    is_flushed_first = False
    offline = None
    flushed_offset = 0
    log_start_offset = 0
    log_end_offset = 1

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[int] = []

    def append_replicated(self, _data: memoryview, batches: list[Any], _now_ms: int) -> int:
        self.asked.append(len(batches))
        return min(len(batches), self.most)


def _following(log: Log) -> Following:
    copying: Any = SimpleNamespace(
        machine=SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0)),
        flusher=SimpleNamespace(flush_soon=lambda _partition: None),
        replicated_bytes=SimpleNamespace(value=0),
    )
    partition: Any = SimpleNamespace(log=log, high_watermark=0, replicated=lambda _high_watermark: None)
    return Following(copying, partition, 0)


def _reply(*batches: bytes) -> FetchedPartition:
    return FetchedPartition(b"topic", 0, records=b"".join(batches), log_start_offset=0)


def test_a_large_reply_is_taken_where_it_arrives() -> None:
    """A task for each partition of it cost a follower a quarter of its time."""
    log = Log(most=1000)
    reply = _reply(batch_of(Record(1, 0, None, b"x" * 1_000_000)))
    following = _following(log)
    assert not following.may_wait_for(reply)
    assert following.take(reply)
    assert log.asked == [1]


def test_the_rest_of_a_reply_that_begins_many_segments_waits_for_the_disk() -> None:
    log = Log(most=2)
    reply = _reply(*(batch_of(Record(offset, 0, None, b"x")) for offset in range(1, 4)))
    assert not _following(log).take(reply)


def test_a_turn_takes_so_many_batches(monkeypatch: Any) -> None:
    monkeypatch.setattr(following_module, "_APPENDED_AT_ONCE", 2)
    log = Log(most=1000)
    reply = _reply(*(batch_of(Record(offset, 0, None, b"x")) for offset in range(1, 4)))
    assert not _following(log).take(reply)
    assert log.asked == [2]
