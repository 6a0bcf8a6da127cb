"""Single rules of a queue; the model of all of them is in `test_engine_model`."""

import sys

import pytest

from millstream.coordinator.shares.engine import QueueEngine
from millstream.coordinator.shares.ledger import Ledger
from millstream.coordinator.shares.policy import Order, QueuePolicy
from millstream.coordinator.shares.queue_values import LogBatch, Mark, Outcome, Reason, Settlement
from millstream.coordinator.shares.states import RecordState, StateBatch
from millstream.protocol.errors import KafkaError

MILLION = 1_000_000


def take(
    engine: QueueEngine, member: str, most: int, end: int, now_ms: int = 0
) -> list[tuple[int, int, int]]:
    """From batches of a hundred records."""
    offset = engine.next_available(end, now_ms)
    if offset is None:
        return []
    first = offset - offset % 100
    batches = [LogBatch(at, at + 99) for at in range(first, min(first + most + 100, end), 100)]
    return [(each.first, each.last, each.count) for each in engine.acquire(member, now_ms, batches, most)]


def test_many_records_with_every_other_one_accepted_stay_few_runs() -> None:
    engine = QueueEngine(0, QueuePolicy(max_locks=10_000))
    held: list[int] = []
    for number in range(MILLION // 100):
        for first, last, _ in take(engine, "m", 100, MILLION):
            for offset in range(first, last + 1):
                if offset % 200:
                    engine.settle("m", [Settlement(offset, offset, Outcome.ACCEPT)], 0)
                else:
                    held.append(offset)
        assert engine.run_count <= 10_002
        if number % 20 == 0:
            engine.take_changes()
        if engine.locked >= 400:
            break
    assert engine.locked >= 400
    assert engine.start == 0
    for offset in held:
        engine.settle("m", [Settlement(offset, offset, Outcome.ACCEPT)], 0)
    assert engine.run_count <= 1


def test_one_record_that_is_never_settled_does_not_stop_the_others() -> None:
    engine = QueueEngine(0, QueuePolicy(max_locks=100))
    assert take(engine, "stuck", 1, MILLION) == [(0, 0, 1)]
    seen = 1
    while seen < 50_000:
        for first, last, _ in take(engine, "m", 99, MILLION):
            engine.settle("m", [Settlement(first, last, Outcome.ACCEPT)], 0)
            seen += last - first + 1
    assert (engine.start, engine.run_count <= 4) == (0, True)


def test_too_many_runs_stop_new_deliveries_and_go_on_when_some_are_settled() -> None:
    engine = QueueEngine(0, QueuePolicy(max_locks=10_000), most_runs=20)
    held = []
    while (taken := take(engine, "m", 10, 10_000)) and engine.run_count < 30:
        for first, last, _ in taken:
            held += list(range(first, last + 1, 2))
            for offset in range(first + 1, last + 1, 2):
                engine.settle("m", [Settlement(offset, offset, Outcome.ACCEPT)], 0)
    assert engine.run_count <= 230
    for offset in held:
        engine.settle("m", [Settlement(offset, offset, Outcome.ACCEPT)], 0)
    assert take(engine, "m", 10, 10_000)


def test_records_that_were_out_before_do_not_make_ever_more_runs_either() -> None:
    """Every second one is released with a delay of its own."""
    engine = QueueEngine(0, QueuePolicy(max_locks=100), most_runs=20)
    for _ in range(20):
        [(first, last, _)] = take(engine, "m", 100, 2_000)
        engine.settle("m", [Settlement(first, last, Outcome.RELEASE, delay_ms=10)], 0)
    engine.on_time(10)
    most = 0
    for now_ms in range(20, 2_000_000, 20_000):
        while taken := take(engine, "m", 100, 2_000, now_ms):
            for first, last, count in taken:
                for offset in range(first, last + 1):
                    outcome = Outcome.RELEASE if offset % 2 and count == 2 else Outcome.ACCEPT
                    each = Settlement(offset, offset, outcome, delay_ms=10_000 + offset)
                    engine.settle("m", [each], now_ms)
                most = max(most, engine.run_count)
    assert engine.start == 2_000
    assert most <= 2 * 20 + 2 * 100


def test_a_suspicious_batch_is_cut_and_its_last_tries_go_alone() -> None:
    engine = QueueEngine(0, QueuePolicy(delivery_count_limit=5))
    sizes = []
    for _ in range(3):
        sizes.append(sum(last - first + 1 for first, last, _ in take(engine, "m", 100, 100)))
        engine.release_member("m", 0)
    assert sizes == [100, 100, 100]
    assert take(engine, "m", 100, 100) == [(0, 49, 4)]
    engine.release_member("m", 0)
    assert take(engine, "m", 100, 100) == [(0, 0, 5)]


def test_the_total_time_of_the_back_off_lowers_the_limit() -> None:
    policy = QueuePolicy(delivery_count_limit=10, backoff_ms=100, backoff_factor=2, retry_total_ms=700)
    assert [policy.backoff(count) for count in (1, 2, 3, 4)] == [100, 200, 400, 800]
    assert policy.deliveries == 4


def test_order_by_key_delivers_the_next_when_the_first_is_final_not_when_it_is_released() -> None:
    engine = QueueEngine(0, QueuePolicy(order=Order.KEY, delivery_count_limit=3))
    engine.observe([Mark(0, b"a"), Mark(1, b"b"), Mark(2, b"a"), Mark(3, None)], 4)
    batches = [LogBatch(0, 3)]
    engine.next_available(4, 0)
    assert [(each.first, each.last) for each in engine.acquire("m", 0, batches, 9)] == [(0, 1), (3, 3)]
    engine.settle("m", [Settlement(0, 0, Outcome.RELEASE)], 0)
    assert engine.next_available(4, 0) == 0
    assert [each.first for each in engine.acquire("m", 0, batches, 9)] == [0]
    engine.settle("m", [Settlement(0, 0, Outcome.REJECT)], 0)
    assert engine.next_available(4, 0) == 2


def test_priority_delay_and_expiry() -> None:
    engine = QueueEngine(0, QueuePolicy(reads_headers=True))
    engine.observe([Mark(0), Mark(1, priority=5), Mark(2, priority=9, due_ms=100), Mark(3, expires_ms=50)], 4)
    batches = [LogBatch(0, 3)]
    order = []
    for now_ms in (0, 0, 60, 100):
        if engine.next_available(4, now_ms) is not None:
            order += [each.first for each in engine.acquire("m", now_ms, batches, 1)]
    assert order == [1, 0, 2]
    assert engine.counters.expired == 1


def test_dead_letters_are_on_their_way_until_they_are_written_and_after_a_restart() -> None:
    policy = QueuePolicy(dead_letters=True)
    engine = QueueEngine(0, policy)
    take(engine, "m", 3, 100)
    engine.settle("m", [Settlement(0, 1, Outcome.REJECT, reason="why")], 0)
    changes = engine.take_changes()
    assert changes is not None
    [letter] = engine.take_dead_letters()
    assert (letter.first, letter.last, letter.reason, engine.start) == (0, 1, "why", 0)
    engine = QueueEngine(changes.start, policy, changes.batches)
    [letter] = engine.take_dead_letters()
    assert letter.reason == Reason.RESTARTED.value
    engine.dead_letter_written(0, 1)
    assert engine.start == 2


def test_a_batch_that_is_too_old_is_given_up_when_it_would_be_delivered() -> None:
    engine = QueueEngine(0, QueuePolicy(ttl_ms=100))
    engine.next_available(20, 200)
    batches = [LogBatch(0, 9, newest_ms=50), LogBatch(10, 19, newest_ms=150)]
    assert [(each.first, each.last) for each in engine.acquire("m", 200, batches, 50)] == [(10, 19)]
    assert (engine.start, engine.counters.expired) == (10, 10)


def test_renewing_can_be_forbidden() -> None:
    engine = QueueEngine(0, QueuePolicy(renew_enabled=False))
    take(engine, "m", 1, 100)
    with pytest.raises(KafkaError, match="renew"):
        engine.settle("m", [Settlement(0, 0, Outcome.RENEW)], 0)


def test_a_million_records_that_nobody_settles_are_few_runs_and_are_handed_out_in_the_end() -> None:
    engine = QueueEngine(0, QueuePolicy(max_locks=2_000, lock_ms=1_000))
    for round_ms in range(0, 3_000, 1_001):
        while taken := take(engine, f"m{round_ms}", 500, MILLION, round_ms):
            assert sum(last - first + 1 for first, last, _ in taken) <= 500
        assert engine.locked == 2_000
        assert engine.run_count < 50
        engine.take_changes()
    assert engine.depth(MILLION) == MILLION
    assert engine.held("m0") == 0


def acquired(engine: QueueEngine, batches: list[LogBatch], end: int, now_ms: int = 0) -> list[int]:
    """The offsets that a consumer gets now."""
    if engine.next_available(end, now_ms) is None:
        return []
    taken = engine.acquire("m", now_ms, batches, 100)
    return [offset for each in taken for offset in range(each.first, each.last + 1)]


def test_a_delayed_message_behind_another_of_its_key_is_still_delayed() -> None:
    engine = QueueEngine(0, QueuePolicy(order=Order.KEY, reads_headers=True))
    engine.observe([Mark(0, b"a"), Mark(1, b"a", due_ms=5_000)], 2)
    assert acquired(engine, [LogBatch(0, 1)], 2) == [0]
    engine.settle("m", [Settlement(0, 0, Outcome.ACCEPT)], 0)
    assert acquired(engine, [LogBatch(0, 1)], 2, 4_999) == []
    assert acquired(engine, [LogBatch(0, 1)], 2, 5_000) == [1]


def test_the_next_of_a_key_is_delivered_when_the_first_was_compacted_away() -> None:
    engine = QueueEngine(0, QueuePolicy(order=Order.KEY))
    engine.observe([Mark(0, b"a"), Mark(1, b"a")], 2)
    assert acquired(engine, [LogBatch(1, 1)], 2) == [1]


def test_what_was_not_looked_into_is_delivered_when_nobody_needs_to() -> None:
    stored = (StateBatch(0, 9, RecordState.AVAILABLE, 1),)
    engine = QueueEngine(0, QueuePolicy(order=Order.KEY), stored)
    engine.policy = QueuePolicy()
    assert acquired(engine, [LogBatch(0, 9)], 10) == list(range(10))


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_queue_of_very_many_runs_goes_on_with_its_next_leader(is_loaded: bool) -> None:
    """Every second message was settled. With 20,000 runs its next leader looked into none, and delivered nothing."""
    policy = QueuePolicy(reads_headers=True)
    engine = QueueEngine(0, policy, most_runs=10, most_scanned=20)
    marks = [Mark(each, priority=9 * (each % 2)) for each in range(200)]

    def deliver() -> set[int]:
        while engine.wants_scan(200):
            engine.observe([marks[engine.scanned]], engine.scanned + 1)
        offset = engine.next_available(200, 0)
        found = [] if offset is None else acquired(engine, [LogBatch(offset, 199)], 200)
        engine.settle("m", [Settlement(each, each, Outcome.ACCEPT) for each in found], 0)
        return set(found)

    assert deliver() == set(range(1, 20, 2))
    if is_loaded:
        changes = engine.take_changes()
        assert changes is not None
        engine = QueueEngine(changes.start, policy, changes.batches, most_runs=10, most_scanned=20)
    assert set[int]().union(*(deliver() for _ in range(200))) == set(range(200)) - set(range(1, 20, 2))


def test_an_order_that_is_turned_off_keeps_no_message_behind_another() -> None:
    engine = QueueEngine(0, QueuePolicy(order=Order.KEY))
    engine.observe([Mark(0, b"a"), Mark(1, b"a"), Mark(2, b"a")], 3)
    assert acquired(engine, [LogBatch(0, 2)], 3) == [0]
    engine.policy = QueuePolicy()
    assert acquired(engine, [LogBatch(1, 2)], 3) == [1, 2]


def test_an_order_that_is_turned_on_counts_for_what_was_delivered_before() -> None:
    engine = QueueEngine(0, QueuePolicy())
    assert acquired(engine, [LogBatch(0, 3)], 4) == [0, 1, 2, 3]
    engine.policy = QueuePolicy(order=Order.KEY)
    engine.observe([Mark(0, b"a"), Mark(1, b"a"), Mark(2, b"a"), Mark(3, b"b")], 4)
    engine.settle(
        "m", [Settlement(1, 1, Outcome.RELEASE, delay_ms=500), Settlement(3, 3, Outcome.RELEASE)], 0
    )
    assert acquired(engine, [LogBatch(0, 3)], 4, 600) == [3]
    engine.settle("m", [Settlement(0, 0, Outcome.ACCEPT)], 600)
    assert acquired(engine, [LogBatch(0, 3)], 4, 600) == [1]


def test_headers_that_are_turned_off_delay_no_message_and_expire_none() -> None:
    engine = QueueEngine(0, QueuePolicy(reads_headers=True))
    engine.observe([Mark(0, due_ms=MILLION), Mark(1, due_ms=MILLION, expires_ms=MILLION + 1), Mark(2)], 3)
    assert acquired(engine, [LogBatch(0, 2)], 3) == [2]
    engine.policy = QueuePolicy()
    assert acquired(engine, [LogBatch(0, 2)], 3) == [0, 1]
    engine.settle("m", [Settlement(0, 2, Outcome.RELEASE)], 0)
    assert acquired(engine, [LogBatch(0, 2)], 3, 2 * MILLION) == [0, 1, 2]


def test_where_only_the_order_counts_headers_do_not() -> None:
    engine = QueueEngine(0, QueuePolicy(order=Order.KEY))
    engine.observe([Mark(0, None, due_ms=MILLION), Mark(1, None, expires_ms=1), Mark(2, None, priority=9)], 3)
    assert acquired(engine, [LogBatch(0, 2)], 3, 2) == [0, 1, 2]


def test_when_settled_messages_would_have_expired_is_forgotten() -> None:
    engine = QueueEngine(0, QueuePolicy(reads_headers=True))
    for first in range(0, 20_000, 100):
        engine.observe([Mark(each, expires_ms=MILLION) for each in range(first, first + 100)], first + 100)
        assert len(acquired(engine, [LogBatch(first, first + 99)], first + 100)) == 100
        engine.settle("m", [Settlement(first, first + 99, Outcome.ACCEPT)], 0)
    assert engine.expiring < 5_000


def steps_of_depth(engine: QueueEngine) -> int:
    """How many functions are called to tell it, and how many return: the same work is the same number."""
    count = 0

    def step(*_what: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(step)
    try:
        engine.depth(MILLION)
    finally:
        sys.setprofile(None)
    return count


def test_how_deep_a_queue_is_takes_the_same_work_whatever_is_in_it() -> None:
    engine = QueueEngine(0, QueuePolicy(max_locks=10_000))
    at_first = steps_of_depth(engine)
    for _ in range(50):
        for first, last, _ in take(engine, "m", 100, MILLION):
            for offset in range(first, last + 1, 2):
                engine.settle("m", [Settlement(offset, offset, Outcome.ACCEPT)], 0)
    assert engine.run_count > 1_000
    assert engine.depth(MILLION) == MILLION - 2_500
    assert steps_of_depth(engine) == at_first


def test_a_group_without_members_for_a_week_has_all_its_messages() -> None:
    week_ms = 7 * 24 * 3600 * 1000
    engine = QueueEngine(0, QueuePolicy())
    assert take(engine, "m", 3, 100) == [(0, 2, 1)]
    engine.settle("m", [Settlement(1, 1, Outcome.ACCEPT)], 0)
    engine.on_time(week_ms)
    assert (engine.start, engine.locked, engine.depth(100)) == (0, 0, 99)
    assert take(engine, "n", 3, 100, week_ms) == [(0, 0, 2), (2, 2, 2), (3, 3, 1)]


@pytest.mark.parametrize("expires", [False, True], ids=["delays", "expiries"])
def test_of_very_many_that_are_due_at_once_so_many_are_dealt_with_in_a_turn(expires: bool) -> None:
    """20,000 that were due together held everybody up for half a second."""
    queue = QueueEngine(0, QueuePolicy(reads_headers=True))
    when = {"expires_ms": 1_000} if expires else {"due_ms": 1_000}
    queue.observe([Mark(each, priority=each % 2, **when) for each in range(2_000)], 2_000)
    calls = 0
    while (due_ms := queue.next_deadline()) is not None and due_ms <= 1_000:
        waiting = queue.depth(2_000) if expires else sum(run.due_ms == 0 for run in queue.runs(0, 2_000))
        queue.on_time(1_000)
        now = queue.depth(2_000) if expires else sum(run.due_ms == 0 for run in queue.runs(0, 2_000))
        assert 0 < abs(now - waiting) <= 500
        calls += 1
        for _ in range(3):
            queue.next_available(2_000, 1_000)
        after = queue.depth(2_000) if expires else sum(run.due_ms == 0 for run in queue.runs(0, 2_000))
        assert after == now, "whoever asks meanwhile does not do the rest"
    assert calls >= 4
    assert queue.depth(2_000) == (0 if expires else 2_000)


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
def test_a_message_whose_dead_letter_cannot_be_written_keeps_no_other_of_its_key(order: Order) -> None:
    """It is not delivered any more, and those behind it waited for as long as its letter did."""
    queue = QueueEngine(0, QueuePolicy(order=order, dead_letters=True))
    queue.observe([Mark(0, b"k"), Mark(1, b"k"), Mark(2, b"k")], 3)
    for offset in (0, 1):
        [taken] = queue.acquire("m", 0, [LogBatch(0, 2)], 3)
        assert (taken.first, taken.last) == (offset, offset)
        queue.settle("m", [Settlement(offset, offset, Outcome.REJECT)], 0)
    queue.dead_letter_written(0, 1)
    [taken] = queue.acquire("m", 0, [LogBatch(0, 2)], 3)
    assert (taken.first, taken.last) == (2, 2)


@pytest.mark.parametrize("reason", [None, Reason.OVERFLOW])
def test_giving_up_many_stretches_is_one_change(
    monkeypatch: pytest.MonkeyPatch, reason: Reason | None
) -> None:
    stored = [StateBatch(at, at, RecordState.AVAILABLE, 1 + at % 2) for at in range(2_000)]
    engine = QueueEngine(0, QueuePolicy(dead_letters=True), stored)
    changes: list[tuple[int, int]] = []
    changed = Ledger.changed
    monkeypatch.setattr(Ledger, "changed", lambda *given: (changes.append(given[1:]), changed(*given)))
    assert engine.drop_available(2_000, reason) == (0 if reason else 2_000)
    assert len(changes) == 1
    letters = engine.take_dead_letters()
    assert [each.count for each in letters] == ([1, 2] * 1_000 if reason else [])
