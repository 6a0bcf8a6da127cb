"""A partition as leader and follower: who is acknowledged when, who is told what when that changes."""

import pytest

from millstream.broker.partitions.partition import Partition
from millstream.cluster.replication import LeaderState
from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import check_produced, iter_batches, read_header
from support.logs import NOW_MS, RELAXED, TOPIC_ID, batch_of, begun, flush, new_log

HEADER = read_header(batch_of([b"x"], producer=(7, 0, 0)))

ME = 1


class Waiter:
    """Waits for acknowledgements, for data, and as a follower's session."""

    def __init__(self) -> None:
        self.outcomes: list[ErrorCode] = []
        self.data: list[int] = []
        self.news: list[str] = []

    def acknowledged(self, _partition: Partition, error: KafkaError | None) -> None:
        self.outcomes.append(ErrorCode.NONE if error is None else error.code)

    def data_arrived(self, size_bytes: int) -> None:
        self.data.append(size_bytes)

    def has_more(self, _partition: Partition) -> None:
        self.news.append("appended")

    def advanced(self, _partition: Partition) -> None:
        self.news.append("advanced")


class NoFlushes:
    def flush_soon(self, partition: Partition) -> None: ...


def partition_of(replicas: int = 3, *, min_isr: int = 1, epoch: int = 4, **config: object) -> Partition:
    log = begun(new_log(**config))
    partition = Partition("t", 0, TOPIC_ID, log, 0, NoFlushes(), is_leader=False)
    members = tuple(range(1, replicas + 1))
    state = LeaderState(
        ME,
        epoch,
        log.log_end_offset,
        partition.high_watermark,
        0.0,
        replicas=members,
        isr=members,
        partition_epoch=0,
        min_isr=min_isr,
    )
    partition.lead(epoch, state if replicas > 1 else None)
    return partition


def append(partition: Partition, *values: bytes) -> int:
    view = memoryview(bytearray(batch_of(values or (b"x",))))
    return partition.append(view, check_produced(view, 9), NOW_MS).last_offset


def sync(partition: Partition) -> None:
    flush(partition.log)
    partition.flushed(partition.log.flushed_offset, partition.log.appended_bytes)


def fetched(partition: Partition, follower: int, offset: int) -> None:
    assert partition.replication is not None
    partition.replication.follower_fetched(follower, offset, partition.log.log_end_offset, 1.0)
    partition.count_replicas()


def isr_is(partition: Partition, *members: int) -> None:
    state = partition.replication
    assert state is not None
    state.metadata_changed(state.replicas, members, state.partition_epoch + 1, 1.0)
    partition.in_sync_set_changed()


def test_all_waits_for_every_member_and_one_only_for_the_leaders_disk() -> None:
    partition = partition_of()
    last = append(partition)
    all_of_them, leader_alone = Waiter(), Waiter()
    assert partition.await_acknowledged(last, all_of_them, by_all=True)
    assert partition.await_acknowledged(last, leader_alone, by_all=False)
    sync(partition)
    assert (all_of_them.outcomes, leader_alone.outcomes) == ([], [ErrorCode.NONE])
    fetched(partition, 2, 1)
    assert partition.high_watermark == 0
    fetched(partition, 3, 1)
    assert all_of_them.outcomes == [ErrorCode.NONE]
    assert partition.high_watermark == 1


def test_who_waits_for_the_leaders_disk_is_answered_when_the_other_replicas_are_taken_away() -> None:
    partition = partition_of(2)
    waiter, behind_it = Waiter(), Waiter()
    partition.await_acknowledged(append(partition), waiter, by_all=False)
    partition.lead(5, None)
    partition.await_acknowledged(append(partition), behind_it, by_all=False)
    sync(partition)
    assert waiter.outcomes == behind_it.outcomes == [ErrorCode.NONE]


def test_followers_that_were_faster_than_the_own_disk_do_not_acknowledge() -> None:
    partition = partition_of()
    waiter = Waiter()
    partition.await_acknowledged(append(partition), waiter)
    fetched(partition, 2, 1)
    fetched(partition, 3, 1)
    assert (waiter.outcomes, partition.high_watermark) == ([], 0)
    sync(partition)
    assert waiter.outcomes == [ErrorCode.NONE]


def test_a_relaxed_topic_counts_what_is_written() -> None:
    partition = partition_of(**RELAXED)
    last = append(partition)
    assert partition.is_acknowledged(last, by_all=False)
    assert not partition.is_acknowledged(last, by_all=True)
    fetched(partition, 2, 1)
    fetched(partition, 3, 1)
    assert partition.is_acknowledged(last, by_all=True)


def test_mode_async_waits_for_the_leader_only_but_shows_what_followers_have() -> None:
    partition = partition_of(min_isr=3, replication_mode="async")
    isr_is(partition, 1, 2)
    partition.require_enough_replicas(HEADER)
    waiter = Waiter()
    partition.await_acknowledged(append(partition), waiter, by_all=True)
    sync(partition)
    assert (waiter.outcomes, partition.high_watermark) == ([ErrorCode.NONE], 0)


def test_modes_need_different_numbers_of_replicas() -> None:
    assert TopicConfig(min_insync_replicas=2).needed_in_sync(3) == 2
    assert TopicConfig(min_insync_replicas=2, replication_mode="sync").needed_in_sync(3) == 3
    assert TopicConfig(min_insync_replicas=5).needed_in_sync(3) == 3


def test_too_few_replicas_before_and_after_the_append() -> None:
    partition = partition_of(min_isr=2)
    waiter = Waiter()
    partition.await_acknowledged(append(partition), waiter)
    sync(partition)
    isr_is(partition, 1)
    assert waiter.outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert partition.high_watermark == 0
    with pytest.raises(KafkaError) as refused:
        partition.require_enough_replicas(HEADER)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_smaller_set_acknowledges_what_waited_for_the_one_that_left() -> None:
    partition = partition_of()
    waiter = Waiter()
    partition.await_acknowledged(append(partition), waiter)
    sync(partition)
    fetched(partition, 2, 1)
    isr_is(partition, 1, 2)
    assert waiter.outcomes == [ErrorCode.NONE]


def test_losing_leadership_answers_those_who_wait_and_wakes_readers_and_followers() -> None:
    partition = partition_of()
    last = append(partition)
    waiters = [Waiter(), Waiter(), Waiter(), Waiter()]
    partition.await_acknowledged(last, waiters[0])
    partition.await_acknowledged(last, waiters[1], by_all=False)
    partition.await_data(waiters[2])
    partition.listeners.append(waiters[3])
    partition.follow(2, 5)
    assert waiters[0].outcomes == waiters[1].outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (waiters[2].data, waiters[3].news) == ([0], ["appended"])
    assert not partition.is_leader
    with pytest.raises(KafkaError) as refused:
        append(partition)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    sync(partition)
    assert partition.high_watermark == 0, "what a leader wrote alone is not committed by its own disk"


def test_a_follower_follows_the_high_watermark_as_far_as_its_own_disk_goes() -> None:
    leader, follower = partition_of(**RELAXED), partition_of()
    follower.follow(2, 5)
    append(leader, b"a", b"b", b"c")
    data = leader.log.read(0, 1 << 20, 3).data
    follower.log.append_replicated(data, [header for _, header in iter_batches(data)], NOW_MS)
    follower.replicated(3)
    assert follower.high_watermark == 0, "not on its disk yet"
    flush(follower.log)
    follower.replicated(2)
    assert follower.high_watermark == 2
    follower.replicated(1)
    assert follower.high_watermark == 2


def test_the_next_leader_goes_on_from_the_followers_high_watermark() -> None:
    partition = partition_of(**RELAXED)
    append(partition, b"a", b"b")
    partition.follow(2, 5)
    partition.replicated(1)
    state = LeaderState(
        ME, 6, 2, partition.high_watermark, 0.0, replicas=(1, 2), isr=(1, 2), partition_epoch=3
    )
    partition.lead(6, state)
    assert partition.log.epochs.entries == [(4, 0), (6, 2)]
    append(partition, b"c")
    assert partition.high_watermark == 1
    fetched(partition, 2, 3)
    assert partition.high_watermark == 3


def test_a_leader_without_followers_touches_no_replication() -> None:
    partition = partition_of(1)
    assert partition.replication is None
    waiter = Waiter()
    partition.await_acknowledged(append(partition), waiter)
    sync(partition)
    assert (waiter.outcomes, partition.high_watermark) == ([ErrorCode.NONE], 1)


def test_followers_are_told_of_appends_at_once_and_of_the_high_watermark() -> None:
    partition = partition_of(2, **RELAXED)
    session = Waiter()
    partition.listeners.append(session)
    append(partition)
    fetched(partition, 2, 1)
    assert session.news == ["appended", "advanced"]


def test_readers_hear_how_many_bytes_became_visible() -> None:
    partition = partition_of(2, **RELAXED)
    reader = Waiter()
    partition.await_data(reader)
    append(partition, b"a" * 100)
    first = partition.log.size_bytes
    append(partition, b"b" * 300)
    fetched(partition, 2, 1)
    fetched(partition, 2, 2)
    assert reader.data == [first, partition.log.size_bytes - first]
