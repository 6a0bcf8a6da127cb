"""Three nodes in one process: damage and holes in one replica are repaired from the others."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from millstream.broker.partitions.partition import Partition
from millstream.broker.replicas.repair import Repairs
from millstream.cluster.replication import LeaderState
from millstream.protocol.record_batch import CorruptBatch
from support.logs import read_values
from support.raw_client import (
    RawClient,
    batch_of,
    fetch_fields,
    fetched_partitions,
    milliseconds,
    produce_fields,
)
from support.three_nodes import ThreeNodes, until
from support.three_replicas import create, followers, image, partition, write

SOON = milliseconds(60_000)
CORRUPT_MESSAGE, NOT_ENOUGH_REPLICAS_AFTER_APPEND, KAFKA_STORAGE_ERROR = 2, 20, 56


@pytest.fixture
def lag_ms() -> int:
    return 3000


def test_a_damaged_batch_is_never_served_and_soon_whole_again(three: ThreeNodes) -> None:
    leader = create(three, segment_bytes="400")
    assert set(write(three, leader, *(b"%d" % number * 40 for number in range(12)))) == {0}
    damaged = partition(three, leader).log.segments[1].log_path
    three.disks[leader].flip_bit(damaged, 90)

    def read() -> tuple[int, int]:
        base = partition(three, leader).log.segments[1].base_offset
        with RawClient(three.nodes[leader].listen) as client:
            (found,) = fetched_partitions(client.call("fetch", 11, **fetch_fields("t", base)))
        return int(found.error_code), len(found.records or b"")

    assert read() == (CORRUPT_MESSAGE, 0)
    until(lambda: read()[0] == 0)
    assert read_values(partition(three, leader).log) == [b"%d" % number * 40 for number in range(12)]
    until(lambda: three.nodes[leader].broker.metrics.repaired_segments.value == 1)


def test_damage_that_recovery_finds_is_repaired(three: ThreeNodes) -> None:
    leader = create(three, segment_bytes="400")
    values = [b"%d" % number * 40 for number in range(12)]
    assert set(write(three, leader, *values)) == {0}
    other = followers(three, leader)[0]
    # What others need not have is cut instead.
    until(lambda: partition(three, other).high_watermark == len(values))
    damaged = partition(three, other).log.segments[-1].log_path
    broker = three.nodes[other].broker
    asyncio.run_coroutine_threadsafe(broker.upkeep.checkpoint(), broker.loop).result(90)
    stopped = three.stop(other)
    # As after a crash: the logs are read again.
    three.disks[other].unlink("/data/clean-shutdown")
    three.disks[other].flip_bit(damaged, 90)
    three.start_again(other, stopped)
    until(lambda: three.nodes[other].broker.metrics.repaired_segments.value == 1)
    until(lambda: read_values(partition(three, other).log) == values)


def test_a_segment_that_is_missing_is_fetched_again(three: ThreeNodes) -> None:
    leader = create(three, segment_bytes="400")
    values = [b"%d" % number * 40 for number in range(12)]
    assert set(write(three, leader, *values)) == {0}
    other = followers(three, leader)[0]
    until(lambda: partition(three, other).high_watermark == len(values))
    missing = partition(three, other).log.segments[1].log_path
    stopped = three.stop(other)
    three.disks[other].unlink(missing)
    three.start_again(other, stopped)
    until(lambda: three.nodes[other].broker.metrics.repaired_segments.value == 1)
    until(lambda: read_values(partition(three, other).log) == values)
    assert partition(three, other).log.segments.damaged == set()


def test_a_repair_goes_on_after_an_error_that_was_not_expected(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended, and the replica no longer said that it waits: with its damage, it could join the in-sync set."""
    calls: list[int] = []
    repair_segment = Repairs._repair_segment

    async def fails_once(self: Repairs, partition: Partition, offset: int) -> None:
        calls.append(offset)
        if len(calls) == 1:
            raise ZeroDivisionError
        await repair_segment(self, partition, offset)

    monkeypatch.setattr(Repairs, "_repair_segment", fails_once)
    leader = create(three, segment_bytes="400")
    values = [b"%d" % number * 40 for number in range(12)]
    assert set(write(three, leader, *values)) == {0}
    other = followers(three, leader)[0]
    until(lambda: partition(three, other).high_watermark == len(values))
    missing = partition(three, other).log.segments[1].log_path
    stopped = three.stop(other)
    three.disks[other].unlink(missing)
    three.start_again(other, stopped)
    until(lambda: three.nodes[other].broker.metrics.repaired_segments.value == 1)
    until(lambda: not partition(three, other).awaits_repair)
    assert read_values(partition(three, other).log) == values


@dataclass
class Holed:
    """A replica that came back with a segment missing, and has all that was written since; its repair is held up."""

    leader: int
    other: int
    values: list[bytes]
    may_repair: threading.Event


def with_a_hole(three: ThreeNodes, monkeypatch: pytest.MonkeyPatch) -> Holed:
    leader = create(three, segment_bytes="400")
    values = [b"%d" % number * 40 for number in range(12)]
    assert set(write(three, leader, *values)) == {0}
    other = followers(three, leader)[0]
    until(lambda: partition(three, other).high_watermark == len(values))
    stopped = three.stop(other)
    until(lambda: other not in image(three, leader).isr)
    three.disks[other].unlink(
        f"/data/topics/t/partition-0/{partition(three, leader).log.segments[1].base_offset:020d}.log"
    )
    fetch_from = Repairs._fetch_from
    may_repair = threading.Event()

    async def held(self: Repairs, *arguments: Any) -> None:
        if not may_repair.is_set():
            raise OSError("no answer")
        await fetch_from(self, *arguments)

    monkeypatch.setattr(Repairs, "_fetch_from", held)
    three.start_again(other, stopped)
    state = partition(three, leader).replication
    assert state is not None
    until(lambda: (known := state.follower(other)) is not None and known.is_damaged)
    more = [b"more"] * 3
    assert set(write(three, leader, *more)) == {0}
    until(lambda: state.follower(other).end_offset == len(values + more))  # type: ignore[union-attr]
    return Holed(leader, other, values + more, may_repair)


def test_a_replica_with_a_hole_is_let_in_when_it_is_whole(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In sync before, it could be the only one left of those that were counted on."""
    holed = with_a_hole(three, monkeypatch)
    assert holed.other not in image(three, holed.leader).isr
    holed.may_repair.set()
    until(lambda: holed.other in image(three, holed.leader).isr)
    assert read_values(partition(three, holed.other).log) == holed.values


def test_with_that_rule_broken_it_is_let_in_with_its_hole(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test before has teeth: nothing but the rule keeps it out. Reads in the hole are refused nevertheless."""
    may_join = LeaderState.may_join

    def whatever_it_lacks(self: LeaderState, broker_id: int, log_start_offset: int = -1) -> bool:
        follower = self.follower(broker_id)
        was_damaged = follower is not None and follower.is_damaged
        if follower is not None:
            follower.is_damaged = False
        joins = may_join(self, broker_id, log_start_offset)
        if follower is not None:
            follower.is_damaged = was_damaged
        return joins

    monkeypatch.setattr(LeaderState, "may_join", whatever_it_lacks)
    holed = with_a_hole(three, monkeypatch)
    until(lambda: holed.other in image(three, holed.leader).isr)
    with pytest.raises(CorruptBatch):
        read_values(partition(three, holed.other).log)
    holed.may_repair.set()
    until(lambda: not partition(three, holed.other).log.segments.damaged)
    assert read_values(partition(three, holed.other).log) == holed.values


def test_a_replica_is_let_in_that_lacks_what_its_leader_lacks_too(three: ThreeNodes) -> None:
    """Nobody could mend it, and too few might be in sync for ever."""
    leader = create(three, segment_bytes="400", min_insync_replicas="3")
    assert set(write(three, leader, *(b"%d" % number * 40 for number in range(12)))) == {0}
    other = followers(three, leader)[0]
    until(lambda: partition(three, other).high_watermark == 12)
    damaged = partition(three, other).log.segments[1].log_path
    stopped = three.stop(other)
    until(lambda: other not in image(three, leader).isr)
    three.disks[other].unlink(damaged)
    for number in three.nodes:
        three.disks[number].flip_bit(damaged, 90)
    three.start_again(other, stopped)
    until(lambda: other in image(three, leader).isr)
    assert write(three, leader, b"more") == [0]


def test_damage_in_what_all_others_have_deleted_is_deleted_here_too(three: ThreeNodes) -> None:
    """It cannot be repaired any more, and no other replica has it to lose."""
    leader = create(three, segment_bytes="400")
    values = [b"%d" % number * 40 for number in range(12)]
    assert set(write(three, leader, *values)) == {0}
    segment = partition(three, leader).log.segments[0]
    end = segment.summary.end_offset
    for number in followers(three, leader):
        until(lambda n=number: partition(three, n).high_watermark == len(values))
        broker = three.nodes[number].broker
        work = broker.upkeep.delete_records_before(partition(three, number), end)
        asyncio.run_coroutine_threadsafe(work, broker.loop).result(120)
    three.disks[leader].flip_bit(segment.log_path, 90)
    with RawClient(three.nodes[leader].listen) as client:
        (found,) = fetched_partitions(client.call("fetch", 11, **fetch_fields("t", 0)))
    assert found.error_code == CORRUPT_MESSAGE
    until(lambda: partition(three, leader).log.log_start_offset == end)
    assert read_values(partition(three, leader).log) == values[end:]


def test_damage_behind_the_start_of_a_log_is_repaired(three: ThreeNodes) -> None:
    """Where records were deleted up to the middle of a segment, and of a batch, no replica has all of it to send."""
    leader = create(three)
    with RawClient(three.nodes[leader].listen) as client:
        for values in ((b"a", b"b", b"c"), (b"d",)):
            client.call("produce", 9, **produce_fields("t", batch_of(*values), acks=-1))
        wanted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
        (deleted,) = client.call("delete_records", 2, topics=wanted, timeout=SOON).topics[0].partitions
        assert deleted.low_watermark == 1
        log = partition(three, leader).log
        three.disks[leader].flip_bit(log.segments[0].log_path, log.segments[0].summary.size_bytes - 1)
        (found,) = fetched_partitions(client.call("fetch", 11, **fetch_fields("t", 3)))
    assert found.error_code == CORRUPT_MESSAGE
    until(lambda: three.nodes[leader].broker.metrics.repaired_segments.value == 1)
    assert read_values(log) == [b"b", b"c", b"d"]


@pytest.mark.parametrize("field", [3, 13])
def test_damage_in_what_no_checksum_covers_is_found_and_repaired_too(three: ThreeNodes, field: int) -> None:
    """Byte 3 of a batch is of its offset, byte 13 of its leader epoch."""
    leader = create(three, segment_bytes="400")
    values = [b"%d" % number * 40 for number in range(12)]
    assert set(write(three, leader, *values)) == {0}
    segment = partition(three, leader).log.segments[1]
    three.disks[leader].flip_bit(segment.log_path, field)
    with RawClient(three.nodes[leader].listen) as client:
        (found,) = fetched_partitions(client.call("fetch", 11, **fetch_fields("t", segment.base_offset)))
    assert (found.error_code, len(found.records or b"")) == (CORRUPT_MESSAGE, 0)
    until(lambda: three.nodes[leader].broker.metrics.repaired_segments.value == 1)
    until(lambda: read_values(partition(three, leader).log) == values)
