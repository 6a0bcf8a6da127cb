"""What is stored of queues: epochs, updates and snapshots, and how much of the log is needed."""

from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.shares.coordinator import ShareCoordinator
from millstream.coordinator.shares.engine import QueueEngine
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.coordinator.shares.queue_values import LogBatch, Outcome, Settlement
from millstream.coordinator.shares.records import ShareKey, ShareRecord, decode_record, encode_record
from millstream.coordinator.shares.requests import (
    MOST_BATCHES,
    NOTHING_STORED,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    WriteState,
)
from millstream.coordinator.shares.states import RecordState, StateBatch, follows
from millstream.protocol.errors import ErrorCode, KafkaError

TOPIC = UUID(int=7)
KEY = ShareKey("g", TOPIC, 0)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


class Log:
    """A coordinator, and the bytes that it would have written."""

    def __init__(self, updates_between_snapshots: int = 5, most_runs: int = 10_000) -> None:
        self._new = partial(ShareCoordinator, updates_between_snapshots, most_runs)
        self.machine = self._new()
        self.written: list[tuple[bytes, bytes | None]] = []
        self.trimmed = 0

    def ask(self, request: Any) -> Any:
        decision = self.machine.handle(request, 1, 1_000)
        for record in decision.records:
            self.written.append(encode_record(record))
            self.machine.stored(record, len(self.written) - 1)
        self.trimmed = max(self.trimmed, self.machine.needed_from() or 0)
        return decision.replies[0].answer

    def reload(self) -> None:
        self.machine = self._new()
        for offset, (key, value) in enumerate(self.written):
            if offset >= self.trimmed:
                record = decode_record(key, value)
                assert isinstance(record, ShareRecord)
                self.machine.replay(record)
                self.machine.stored(record, offset)


def refusal(log: Log, request: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        log.ask(request)
    return refused.value.code


def write(start: int, *batches: StateBatch, leader_epoch: int = 1, state_epoch: int = 0) -> WriteState:
    return WriteState(KEY, state_epoch, leader_epoch, start, 0, batches)


def test_what_was_written_is_read_after_a_restart() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 10))
    log.ask(write(-1, StateBatch(10, 19, AVAILABLE, 1)))
    log.ask(write(12, StateBatch(12, 14, ACKNOWLEDGED, 1), StateBatch(15, 15, AVAILABLE, 1, due_ms=99)))
    log.reload()
    state = log.ask(ReadState(KEY, 1))
    assert state.start == 12
    assert state.batches == (
        StateBatch(12, 14, ACKNOWLEDGED, 1),
        StateBatch(15, 15, AVAILABLE, 1, 99),
        StateBatch(16, 19, AVAILABLE, 1),
    )


def test_what_never_reached_its_consumer_does_not_count_at_the_next_leader_either() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 0))
    engine = QueueEngine(0, QueuePolicy())
    for _ in range(3):
        for settlements in ([], [Settlement(0, 0, Outcome.UNDELIVERED)]):
            if settlements:
                engine.settle("m", settlements, 1)
            else:
                engine.acquire("m", 1, [LogBatch(0, 0)], 1)
            changes = engine.take_changes()
            assert changes is not None
            log.ask(write(changes.start, *changes.batches))
    log.reload()
    state = log.ask(ReadState(KEY, 2))
    [taken] = QueueEngine(state.start, QueuePolicy(), state.batches).acquire("n", 1, [LogBatch(0, 0)], 1)
    assert taken.count == 1


def test_a_leader_that_was_replaced_cannot_write_also_after_a_restart() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 0))
    log.ask(ReadState(KEY, 5))
    log.reload()
    with pytest.raises(KafkaError) as refused:
        log.ask(write(-1, StateBatch(0, 0, ACKNOWLEDGED, 1), leader_epoch=4))
    assert refused.value.code == ErrorCode.FENCED_LEADER_EPOCH


def test_what_is_known_of_records_that_were_lost_is_forgotten() -> None:
    """Other records have their offsets now; they were taken for settled."""
    log = Log()
    log.ask(InitializeState(KEY, 0, 0, leader_epoch=3))
    log.ask(write(2, StateBatch(2, 4, AVAILABLE, 2), StateBatch(5, 9, ACKNOWLEDGED, 1), leader_epoch=3))
    state = log.ask(ReadState(KEY, 4, former_epoch=3, kept_before=7))
    assert (state.start, state.batches) == (
        2,
        (StateBatch(2, 4, AVAILABLE, 2), StateBatch(5, 6, ACKNOWLEDGED, 1)),
    )
    log.reload()
    # By the next leader nothing more is cut: it asks of the one before it.
    assert log.ask(ReadState(KEY, 5, former_epoch=4, kept_before=99)) == state
    assert log.ask(ReadSummary(KEY)).final == 2
    with pytest.raises(KafkaError) as refused:
        log.ask(write(10, leader_epoch=3))
    assert refused.value.code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_start_behind_records_that_were_lost_goes_back() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 0, leader_epoch=3))
    log.ask(write(10, leader_epoch=3))
    assert log.ask(ReadState(KEY, 4, former_epoch=3, kept_before=6)).start == 6
    log.reload()
    summary = log.ask(ReadSummary(KEY))
    assert (summary.start, summary.final) == (6, 0)


def test_a_leader_that_asks_of_another_than_the_last_one_cuts_nothing() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 0, leader_epoch=3))
    log.ask(write(10, leader_epoch=3))
    with pytest.raises(KafkaError):
        log.ask(ReadState(KEY, 5, former_epoch=2, kept_before=6))
    assert log.ask(ReadSummary(KEY)).start == 10


def test_a_start_that_an_administrator_gave_is_of_no_leaders_log() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 0, leader_epoch=3))
    log.ask(InitializeState(KEY, 1, 500))
    assert log.ask(ReadSummary(KEY)).leader_epoch == -1
    assert log.ask(ReadState(KEY, 4, former_epoch=-1, kept_before=-1)).start == 500


def test_a_queue_that_was_set_back_takes_nothing_of_before() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 50))
    log.ask(InitializeState(KEY, 1, 0))
    with pytest.raises(KafkaError) as refused:
        log.ask(write(-1, StateBatch(50, 50, ACKNOWLEDGED, 1)))
    assert refused.value.code == ErrorCode.FENCED_STATE_EPOCH
    assert log.ask(ReadSummary(KEY)).start == 0


def test_initializing_twice_changes_nothing() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 10))
    assert log.ask(InitializeState(KEY, 0, 99)).start == 10
    # Another leader had found nothing stored a moment ago.
    assert log.ask(InitializeState(KEY, 7, 99, leader_epoch=1)).start == 10


def test_a_deleted_queue_is_unknown() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 0))
    log.ask(DeleteState(KEY))
    log.reload()
    assert log.ask(ReadState(KEY, 1)) == NOTHING_STORED
    with pytest.raises(KafkaError) as refused:
        log.ask(write(-1))
    assert refused.value.code == ErrorCode.FENCED_STATE_EPOCH


def test_more_batches_than_a_turn_may_take_are_refused() -> None:
    log = Log()
    log.ask(InitializeState(KEY, 0, 0))
    many = tuple(StateBatch(offset, offset, AVAILABLE, 1) for offset in range(MOST_BATCHES + 1))
    nested = tuple(StateBatch(500 - at, 500 + at, AVAILABLE, 1) for at in range(300))
    assert refusal(log, write(-1, *many)) == ErrorCode.INVALID_REQUEST
    assert refusal(log, write(-1, *nested)) == ErrorCode.INVALID_REQUEST
    assert log.ask(ReadState(KEY, 1)).batches == ()
    log.ask(write(-1, *many[:-1]))
    assert log.ask(ReadState(KEY, 1)).batches == (StateBatch(0, MOST_BATCHES - 1, AVAILABLE, 1),)


def test_few_batches_that_overlap_are_refused_where_they_go_through_very_many_others() -> None:
    log = Log(most_runs=20_000)
    log.ask(InitializeState(KEY, 0, 0))
    for first in range(0, 5_000, MOST_BATCHES):
        log.ask(write(-1, *singles(first, first + MOST_BATCHES - 1)))
    nested = [StateBatch(at, 5_000 - at, ACKNOWLEDGED, 1) for at in range(30)]
    assert refusal(log, write(-1, *nested)) == ErrorCode.INVALID_REQUEST
    log.ask(write(-1, *nested[:10]))
    assert log.ask(ReadState(KEY, 1)).batches == (StateBatch(0, 5_000, ACKNOWLEDGED, 1),)


def singles(first: int, last: int) -> tuple[StateBatch, ...]:
    """Records that are one run each."""
    return tuple(StateBatch(at, at, AVAILABLE, 1 + at % 2) for at in range(first, last + 1))


def test_a_queue_stores_no_more_than_so_many_runs_and_is_told_which_write_is_too_much() -> None:
    log = Log(most_runs=60)
    log.ask(InitializeState(KEY, 0, 0))
    log.ask(write(-1, *singles(0, 19)))
    assert refusal(log, write(-1, *singles(20, 39))) == ErrorCode.INVALID_REQUEST
    assert len(log.ask(ReadState(KEY, 1)).batches) == 20
    # What was settled makes room.
    log.ask(write(15, StateBatch(15, 19, ACKNOWLEDGED, 2)))
    log.ask(write(-1, *singles(20, 35)))
    log.reload()
    assert len(log.ask(ReadState(KEY, 1)).batches) == 17


def test_gaps_that_one_batch_fills_count_too() -> None:
    log = Log(most_runs=40)
    log.ask(InitializeState(KEY, 0, 0))

    def write_every_second(first: int, last: int) -> None:
        log.ask(write(-1, *(StateBatch(at, at, ACKNOWLEDGED, 1) for at in range(first, last + 1, 2))))

    write_every_second(0, 18)
    write_every_second(20, 26)
    log.ask(write(-1, StateBatch(0, 29, ARCHIVED, 1)))
    write_every_second(40, 46)
    log.ask(write(-1, StateBatch(30, 49, ARCHIVED, 1)))
    write_every_second(60, 60)
    assert len(log.ask(ReadState(KEY, 1)).batches) == 37
    assert refusal(log, write(-1, StateBatch(50, 69, ARCHIVED, 1))) == ErrorCode.INVALID_REQUEST


def test_delays_that_are_over_take_no_room() -> None:
    """The clock of these tests stands at 1,000."""
    log = Log(most_runs=60)
    log.ask(InitializeState(KEY, 0, 0))
    for first in range(0, 400, 10):
        log.ask(write(-1, *(StateBatch(at, at, AVAILABLE, 1, at + 1) for at in range(first, first + 10))))
    log.reload()
    stored = log.ask(ReadState(KEY, 1)).batches
    assert sum(each.last - each.first + 1 for each in stored) == 400


def test_the_log_behind_snapshots_goes_also_with_idle_queues() -> None:
    log = Log(updates_between_snapshots=500)
    for partition in range(3):
        log.ask(InitializeState(ShareKey("idle", TOPIC, partition), 0, partition))
    log.ask(InitializeState(KEY, 0, 0))
    for offset in range(12_000):
        log.ask(write(offset + 1, StateBatch(offset, offset, ACKNOWLEDGED, 1)))
    assert len(log.written) - log.trimmed < 6_000
    log.reload()
    assert log.ask(ReadSummary(KEY)).start == 12_000
    assert log.ask(ReadSummary(ShareKey("idle", TOPIC, 2))).start == 2


batches = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from((AVAILABLE, ACKNOWLEDGED, ARCHIVED)),
        st.integers(1, 4),
    ).map(lambda t: StateBatch(t[0], t[0] + t[1], t[2], t[3])),
    max_size=4,
).map(tuple)


@given(st.lists(batches, max_size=12), st.integers(2, 6))
def test_whatever_is_written_is_the_furthest_of_each_record(writes: list[Any], between: int) -> None:
    log = Log(updates_between_snapshots=between)
    log.ask(InitializeState(KEY, 0, 0))
    rows: dict[int, StateBatch] = {}
    for given_batches in writes:
        log.ask(write(-1, *given_batches))
        for batch in given_batches:
            for offset in range(batch.first, batch.last + 1):
                former = rows.get(offset)
                if former is None or follows(batch.state, batch.count, former.state, former.count):
                    rows[offset] = batch
    log.reload()
    stored = {
        offset: batch.state
        for batch in log.ask(ReadState(KEY, 1)).batches
        for offset in range(batch.first, batch.last + 1)
    }
    assert stored == {offset: batch.state for offset, batch in rows.items()}
