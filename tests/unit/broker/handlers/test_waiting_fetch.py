"""A fetch that found too little waits, and reads no byte a second time."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from millstream.broker.server import replies
from millstream.storage.log import PartitionLog
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, fetch_fields, fetched_partitions, produce
from support.waiting import wait_for

LONG_MS = 60_000


@pytest.fixture
def node() -> Iterator[InProcessNode]:
    with node_on(SimulatedDisk()) as node:
        yield node


@pytest.fixture
def read_from(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which logs were read."""
    offsets: list[int] = []
    read = PartitionLog.read

    def noted(self: PartitionLog, offset: int, *arguments: Any, **options: Any) -> Any:
        offsets.append(offset)
        return read(self, offset, *arguments, **options)

    monkeypatch.setattr(PartitionLog, "read", noted)
    return offsets


def test_only_what_has_come_since_is_read(node: InProcessNode, read_from: list[int]) -> None:
    batch = batch_of(b"x" * 100)
    with RawClient(node.listen) as writer, RawClient(node.listen) as reader:
        topic = create_topic(writer, "t")
        produce(writer, topic, batch)
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=LONG_MS, min_bytes=len(batch) + 1))
        wait_for(lambda: node.broker.delayed.fetches, lambda count: count == 1, "the fetch waits")
        assert node.broker.server.reply_memory.used_bytes == len(batch), "it is counted while it is kept"
        produce(writer, topic, batch_of(b"y" * 100))
        (found,) = fetched_partitions(reader.receive())
        assert read_from == [0, 1]
        assert b"x" * 100 in found.records
        assert b"y" * 100 in found.records
        assert len(found.records) == 2 * len(batch)
        wait_for(lambda: node.broker.server.reply_memory.used_bytes, lambda size: size == 0, "given back")


def test_what_was_deleted_meanwhile_is_not_sent(node: InProcessNode, read_from: list[int]) -> None:
    batch = batch_of(b"x" * 100)
    with RawClient(node.listen) as writer, RawClient(node.listen) as reader:
        topic = create_topic(writer, "t")
        produce(writer, topic, batch)
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=LONG_MS, min_bytes=len(batch) + 1))
        wait_for(lambda: node.broker.delayed.fetches, lambda count: count == 1, "the fetch waits")
        records = {"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}
        writer.call("delete_records", 2, topics=[records])
        produce(writer, topic, batch_of(b"y" * 100))
        (found,) = fetched_partitions(reader.receive())
    assert found.error_code == 1, "OFFSET_OUT_OF_RANGE, as for every fetch below the log's start"
    assert read_from[:1] == [0]


def test_with_little_memory_it_is_read_again(node: InProcessNode, read_from: list[int]) -> None:
    batch = batch_of(b"x" * 100)
    memory = node.broker.server.reply_memory
    with RawClient(node.listen) as writer, RawClient(node.listen) as reader:
        topic = create_topic(writer, "t")
        produce(writer, topic, batch)
        node.loop.call_soon_threadsafe(memory.take, memory.limit_bytes // 2)
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=LONG_MS, min_bytes=len(batch) + 1))
        wait_for(lambda: node.broker.delayed.fetches, lambda count: count == 1, "the fetch waits")
        produce(writer, topic, batch_of(b"y" * 100))
        (found,) = fetched_partitions(reader.receive())
    assert read_from == [0, 0]
    assert len(found.records) == 2 * len(batch)


def test_a_partition_that_is_named_twice_is_read_from_both_offsets(node: InProcessNode) -> None:
    """What was kept of it for one was sent for the other: records were passed over."""
    size = len(batch_of(b"x" * 100))
    with RawClient(node.listen) as writer, RawClient(node.listen) as reader:
        topic = create_topic(writer, "t")
        produce(writer, topic, batch_of(b"x" * 100))
        produce(writer, topic, batch_of(b"y" * 100))
        fields = fetch_fields(topic, 0, max_wait_ms=LONG_MS, min_bytes=3 * size + 1)
        (named,) = fields["topics"]
        (first,) = named["partitions"]
        named["partitions"] = [first, {**first, "fetch_offset": 1}]
        reader.send("fetch", 12, **fields)
        wait_for(lambda: node.broker.delayed.fetches, lambda count: count == 1, "the fetch waits")
        produce(writer, topic, batch_of(b"z" * 100))
        found = fetched_partitions(reader.receive())
    assert [[text * 100 in each.records for text in (b"x", b"y", b"z")] for each in found] == [
        [True, True, True],
        [False, True, True],
    ]


def test_one_message_that_ends_the_wait_of_many_is_read_for_some_of_them_in_a_turn(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, partitions = 100, 300
    monkeypatch.setattr(replies, "_COST_OF_A_TURN", most)
    reads_by_turn = [0]
    read = PartitionLog.read

    def counted(self: PartitionLog, *arguments: Any, **options: Any) -> Any:
        if not reads_by_turn[-1]:
            node.loop.call_soon(reads_by_turn.append, 0)
        reads_by_turn[-1] += 1
        return read(self, *arguments, **options)

    with ExitStack() as opened:
        writer, *readers = [opened.enter_context(RawClient(node.listen)) for _ in range(11)]
        topic = create_topic(writer, "t", partitions)
        for reader in readers:
            reader.send("fetch", 12, **fetch_fields(topic, *[0] * partitions, max_wait_ms=LONG_MS))
        wait_for(lambda: node.broker.delayed.fetches, lambda count: count == 10, "they wait")
        monkeypatch.setattr(PartitionLog, "read", counted)
        produce(writer, topic, batch_of(b"x" * 100))
        for reader in readers:
            first, *others = fetched_partitions(reader.receive())
            assert b"x" * 100 in first.records
            assert not any(each.records for each in others)
    assert sum(reads_by_turn) == 10 * partitions
    # The end of a turn is noted within the next one.
    assert max(reads_by_turn) <= 2 * partitions
