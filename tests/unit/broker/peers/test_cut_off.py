"""A node that others may have gone on without keeps clients from what another may lead by now."""

from collections.abc import Callable

import pytest

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import CutOff, Partitions
from millstream.cluster.replication import LeaderState
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import check_produced
from support.logs import NOW_MS, TOPIC_ID, batch_of, new_log


class NoFlushes:
    def flush_soon(self, partition: Partition) -> None: ...


class Waiter:
    def __init__(self) -> None:
        self.outcomes: list[ErrorCode] = []
        self.woken = 0

    def acknowledged(self, _partition: Partition, error: KafkaError | None) -> None:
        self.outcomes.append(ErrorCode.NONE if error is None else error.code)

    def data_arrived(self, _size_bytes: int) -> None:
        self.woken += 1


def node_with(index: int, *, leads: bool = True, replicas: int = 3) -> tuple[Partitions, Partition]:
    partition = Partition("t", index, TOPIC_ID, new_log(), 0, NoFlushes(), is_leader=False)
    members = tuple(range(1, replicas + 1))
    if leads:
        state = LeaderState(1, 4, 0, 0, 0.0, replicas=members, isr=members, partition_epoch=0, min_isr=1)
        partition.lead(4, state if replicas > 1 else None)
    else:
        partition.follow(2, 4)
    partitions = Partitions()
    partitions.add(partition)
    return partitions, partition


def append(partition: Partition, sequence: int) -> int:
    view = memoryview(bytearray(batch_of([b"x"], producer=(7, 0, sequence))))
    return partition.append(view, check_produced(view, 9), NOW_MS).last_offset


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def test_who_waits_is_told_to_look_elsewhere_and_who_comes_too() -> None:
    partitions, partition = node_with(0)
    by_all, by_leader, reader = Waiter(), Waiter(), Waiter()
    last = append(partition, 0)
    partition.await_acknowledged(last, by_all)
    partition.await_acknowledged(last, by_leader, by_all=False)
    partition.await_data(reader)
    partitions.cut_off(CutOff.SILENCE)
    assert by_all.outcomes == by_leader.outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert reader.woken == 1
    assert refused(lambda: partitions.find_for_client("t", 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partitions.find("t", 0) is partition, "followers go on"
    partitions.rejoin(CutOff.SILENCE)
    assert partitions.find_for_client("t", 0) is partition


def test_what_it_follows_is_withheld_too() -> None:
    partitions, partition = node_with(0, leads=False)
    assert partitions.find_for_client("t", 0, followed=True) is partition
    partitions.cut_off(CutOff.SILENCE)
    assert (
        refused(lambda: partitions.find_for_client("t", 0, followed=True)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_what_nobody_else_has_is_served_on() -> None:
    partitions, partition = node_with(0, replicas=1)
    waiter = Waiter()
    partition.await_acknowledged(append(partition, 0), waiter)
    partitions.cut_off(CutOff.SILENCE)
    assert waiter.outcomes == []
    assert partitions.find_for_client("t", 0) is partition


def test_batches_behind_a_refused_one_wait_for_it_though_contact_is_back() -> None:
    """Otherwise they would look as if one were missing, and a client might begin again with what is in the log."""
    _, partition = node_with(0)
    append(partition, 0)
    view = memoryview(bytearray(batch_of([b"x"], producer=(7, 0, 1))))
    header = check_produced(view, 9)
    assert (
        refused(lambda: partition.refuse(header, partition.isolated_error()))
        is ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    assert refused(lambda: append(partition, 2)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [append(partition, sequence) for sequence in (1, 2)] == [1, 2]


def test_batches_that_waited_are_found_in_the_log_when_contact_is_back() -> None:
    _, partition = node_with(0)
    offsets = [append(partition, sequence) for sequence in (0, 1, 2)]
    for sequence in (0, 1, 2, 3):
        header = check_produced(memoryview(batch_of([b"x"], producer=(7, 0, sequence))), 9)
        code = refused(lambda header=header: partition.refuse(header, partition.isolated_error()))
        assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [append(partition, sequence) for sequence in (0, 1, 2, 3)] == [*offsets, 3]
