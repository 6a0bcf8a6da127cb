"""The leader's rules: who is in sync, and up to where the log is committed."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.cluster.replication import EpochEnd, LeaderState, find_divergence, truncation_offset
from millstream.storage.leader_epochs import LeaderEpochs

ME, LAG = 1, 10.0


def leader(
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] | None = None,
    *,
    high_watermark: int = 0,
    epoch_start: int = 0,
    min_isr: int = 1,
) -> LeaderState:
    return LeaderState(
        ME,
        5,
        epoch_start,
        high_watermark,
        0.0,
        replicas=replicas,
        isr=replicas if isr is None else isr,
        partition_epoch=0,
        min_isr=min_isr,
    )


def test_the_high_watermark_is_the_lowest_end_of_the_in_sync_set() -> None:
    state = leader()
    assert not state.advance(10), "followers that were not heard of hold it back"
    state.follower_fetched(2, 7, 10, 1.0)
    state.follower_fetched(3, 4, 10, 1.0)
    assert state.advance(10)
    assert state.high_watermark == 4
    state.follower_fetched(3, 9, 10, 2.0)
    assert state.advance(6), "the leader's own disk may be the slowest"
    assert state.high_watermark == 6


def test_a_follower_that_is_not_in_sync_holds_nothing_back() -> None:
    state = leader(isr=(1, 2))
    state.follower_fetched(2, 8, 8, 1.0)
    state.follower_fetched(3, 1, 8, 1.0)
    assert state.advance(8)
    assert state.high_watermark == 8


def test_nothing_is_committed_of_which_the_leader_knows_that_it_is_damaged() -> None:
    state = leader(isr=(1,), high_watermark=3)
    state.damaged_from = 5
    assert state.advance(9)
    assert state.high_watermark == 5


def test_who_has_all_that_a_damaged_leader_can_give_may_join_and_does_not_lag() -> None:
    state = leader(isr=(1,), high_watermark=5, epoch_start=2)
    state.damaged_from = 5
    state.follower_fetched(2, 5, 9, 1.0)
    assert state.may_join(2)
    assert not state.is_lagging(2, 9, 1.0 + 2 * LAG, LAG)


def test_it_never_goes_back() -> None:
    state = leader(isr=(1, 2), high_watermark=6)
    state.follower_fetched(2, 3, 9, 1.0)
    assert not state.advance(9)
    assert state.high_watermark == 6


def test_it_does_not_move_while_too_few_are_in_sync() -> None:
    state = leader(isr=(1,), min_isr=2)
    assert state.is_under_minimum
    assert not state.advance(9)
    state.follower_fetched(2, 9, 9, 1.0)
    change = state.propose(joining=[2])
    assert not state.advance(9), "a member that is not committed does not count"
    state.metadata_changed((1, 2, 3), change.isr, 1, 2.0)
    assert state.advance(9)


def test_the_minimum_is_never_more_than_there_are_replicas() -> None:
    assert not leader((1, 2), min_isr=3).is_under_minimum


def test_a_pending_member_counts_already_and_a_leaving_one_still() -> None:
    state = leader(isr=(1, 2))
    state.follower_fetched(2, 10, 10, 1.0)
    state.follower_fetched(3, 5, 10, 1.0)
    state.propose(joining=[3])
    state.advance(10)
    assert state.high_watermark == 5
    state = leader(isr=(1, 2, 3))
    state.follower_fetched(2, 10, 10, 1.0)
    state.follower_fetched(3, 5, 10, 1.0)
    change = state.propose(leaving=[3])
    assert change.isr == (1, 2)
    state.advance(10)
    assert state.high_watermark == 5
    state.metadata_changed((1, 2, 3), (1, 2), 1, 2.0)
    state.advance(10)
    assert state.high_watermark == 10


def test_a_refused_change_counts_no_longer() -> None:
    state = leader(isr=(1, 2))
    state.follower_fetched(2, 10, 10, 1.0)
    state.follower_fetched(3, 5, 10, 1.0)
    state.clear_pending(state.propose(joining=[3]))
    state.advance(10)
    assert state.high_watermark == 10


def test_an_old_word_of_the_controller_is_not_heard() -> None:
    state = leader(isr=(1, 2))
    state.metadata_changed((1, 2, 3), (1, 2, 3), 4, 1.0)
    state.metadata_changed((1, 2, 3), (1,), 3, 2.0)
    assert state.isr == (1, 2, 3)


def test_a_replica_that_waits_for_a_repair_does_not_join() -> None:
    state = leader(isr=(1, 2))
    state.follower_fetched(3, 10, 10, 1.0, is_damaged=True)
    assert not state.may_join(3)
    state.follower_fetched(3, 10, 10, 2.0)
    assert state.may_join(3)


def test_a_change_stays_pending_until_the_metadata_moves_on() -> None:
    state = leader(isr=(1, 2))
    change = state.propose(leaving=[2])
    state.metadata_changed((1, 2, 3), (1, 2), 0, 1.0)
    assert state.pending is change
    state.metadata_changed((1, 2, 3), (1, 2), 1, 1.0)
    assert state.pending is None


def test_a_follower_is_caught_up_when_it_has_what_there_was_at_its_previous_fetch() -> None:
    state = leader()
    state.follower_fetched(2, 10, 10, 0.0)
    for second in range(1, 50):
        # Always one fetch behind a leader that is written to all the time.
        state.follower_fetched(2, 10 * second, 10 * second + 10, float(second))
        state.follower_fetched(3, 5, 10 * second + 10, float(second))
    assert state.lagging(600, 49.0, LAG) == (3,)


def test_one_that_has_everything_does_not_lag_however_long_ago_it_asked() -> None:
    state = leader()
    state.follower_fetched(2, 7, 7, 0.0)
    state.follower_fetched(3, 7, 7, 0.0)
    assert state.lagging(7, 1000.0, LAG) == ()
    assert state.lagging(8, 1000.0, LAG) == (2, 3)


def test_members_have_a_whole_lag_time_to_show_themselves_to_a_new_leader() -> None:
    state = leader()
    assert state.lagging(5, LAG, LAG) == ()
    assert state.lagging(5, LAG + 0.1, LAG) == (2, 3)


def test_who_may_join_has_the_high_watermark_and_the_start_of_the_epoch() -> None:
    state = leader(isr=(1,), high_watermark=5, epoch_start=8)
    for offset, may in ((4, False), (5, False), (7, False), (8, True)):
        state.follower_fetched(2, offset, 9, 1.0)
        assert state.may_join(2) is may
    assert not state.may_join(3), "not heard of"
    assert not leader().may_join(2), "already a member"


def test_who_may_join_has_nothing_that_was_deleted() -> None:
    state = leader(isr=(1,), high_watermark=5, epoch_start=5)
    for start, may in ((0, False), (2, False), (3, True), (4, True)):
        state.follower_fetched(2, 5, 5, 1.0, log_start_offset=start)
        assert state.may_join(2, 3) is may


def test_who_may_join_by_its_offset_may_still_be_lagging() -> None:
    state = leader(isr=(1,), high_watermark=5, epoch_start=5)
    state.follower_fetched(2, 5, 5, 0.0)
    assert state.may_join(2)
    assert not state.is_lagging(2, 6, LAG, LAG)
    assert state.is_lagging(2, 6, LAG + 0.1, LAG)
    assert not state.is_lagging(2, 5, LAG + 0.1, LAG), "it has everything"


def test_a_broker_without_a_replica_is_not_counted() -> None:
    assert not leader().follower_fetched(9, 5, 5, 1.0)


OFFSETS = st.integers(0, 50)


class Machine(RuleBasedStateMachine):
    """Whatever happens, the high watermark only grows and never passes a possible member or the leader's own disk."""

    def __init__(self) -> None:
        super().__init__()
        self.state = leader(min_isr=2)
        self.now, self.own, self.end, self.highest = 0.0, 0, 0, 0

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count

    @rule()
    def flush(self) -> None:
        self.own = self.end
        self._advance()

    @rule(follower=st.sampled_from([2, 3]), offset=OFFSETS)
    def fetch(self, follower: int, offset: int) -> None:
        self.now += 1
        self.state.follower_fetched(follower, min(offset, self.end), self.end, self.now)
        self._advance()

    @rule(follower=st.sampled_from([2, 3]))
    def ask(self, follower: int) -> None:
        if self.state.pending is None:
            if follower in self.state.isr:
                self.state.propose(leaving=[follower])
            elif self.state.may_join(follower):
                self.state.propose(joining=[follower])

    @rule(is_made=st.booleans())
    def decide(self, is_made: bool) -> None:
        change = self.state.pending
        if change is None:
            return
        if is_made:
            self.state.metadata_changed(self.state.replicas, change.isr, change.partition_epoch + 1, self.now)
        else:
            self.state.clear_pending(change)
        self._advance()

    def _advance(self) -> None:
        before = self.state.high_watermark
        members = {*self.state.isr, *(self.state.pending.isr if self.state.pending else ())}
        moved = self.state.advance(self.own)
        after = self.state.high_watermark
        assert moved == (after > before)
        if moved:
            assert len(self.state.isr) >= 2
            assert after <= self.own
            for each in members - {ME}:
                follower = self.state.follower(each)
                assert follower is not None
                assert after <= follower.end_offset

    @invariant()
    def only_grows(self) -> None:
        assert self.state.high_watermark >= self.highest
        self.highest = self.state.high_watermark


TestMachine = Machine.TestCase


@given(st.lists(st.sampled_from([2, 3]), max_size=6))
def test_epochs_of_members_are_those_they_fetched_in(fetches: list[int]) -> None:
    state = leader()
    for number, follower in enumerate(fetches):
        state.follower_fetched(follower, 0, 0, 1.0, broker_epoch=100 + number)
    last = {follower: 100 + number for number, follower in enumerate(fetches)}
    change = state.propose(7)
    assert dict(zip(change.isr, change.broker_epochs, strict=True)) == {
        1: 7,
        2: last.get(2, -1),
        3: last.get(3, -1),
    }


def test_who_registers_again_is_not_taken_in_for_what_it_had_before() -> None:
    """The change may be asked for again: it says in which life the replica had all, not in which it is now."""
    state = leader(isr=(1, 2))
    state.follower_fetched(3, 10, 10, 1.0, broker_epoch=100)
    change = state.propose(7, joining=[3])
    state.follower_fetched(3, 4, 10, 2.0, broker_epoch=101)
    assert (state.pending, change.isr, change.broker_epochs) == (change, (1, 2, 3), (7, -1, 100))


def epochs_of(log: list[int]) -> LeaderEpochs:
    """A log is the epoch of each of its records."""
    entries: list[tuple[int, int]] = []
    for offset, epoch in enumerate(log):
        if not entries or entries[-1][0] != epoch:
            entries.append((epoch, offset))
    return LeaderEpochs(entries)


def test_logs_that_agree_do_not_diverge() -> None:
    log = [1, 1, 2, 2]
    assert find_divergence(epochs_of(log), 4, 3, 2) is None
    assert find_divergence(epochs_of(log), 4, 2, 1) is None
    assert find_divergence(epochs_of(log), 4, 0, -1) is None


def test_a_longer_epoch_at_the_follower_diverges() -> None:
    assert find_divergence(epochs_of([1, 1, 3]), 3, 4, 1) == EpochEnd(1, 2)


def test_an_epoch_the_leader_never_had_gives_the_one_below() -> None:
    assert find_divergence(epochs_of([1, 1, 4]), 3, 3, 2) == EpochEnd(1, 2)


def test_an_epoch_above_all_is_undefined() -> None:
    assert find_divergence(epochs_of([1, 1]), 2, 2, 7) == EpochEnd(-1, -1)


def test_the_follower_keeps_what_both_have() -> None:
    assert truncation_offset(epochs_of([1, 1, 1, 1]), 4, EpochEnd(1, 2)) == 2
    assert truncation_offset(epochs_of([1, 2, 2]), 3, EpochEnd(1, 5)) == 1
    assert truncation_offset(epochs_of([1, 3, 3]), 3, EpochEnd(2, 5)) == 1
    assert truncation_offset(epochs_of([4, 4]), 2, EpochEnd(2, 1)) == 0


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Logs as elections may leave them: every epoch has one leader, who writes on top of a log that it had."""
    logs: list[list[int]] = [[] for _ in range(3)]
    for epoch in range(1, draw(st.integers(1, 7))):
        leader = draw(st.integers(0, 2))
        logs[leader] = logs[leader] + [epoch] * draw(st.integers(0, 4))
        for follower in {0, 1, 2} - {leader}:
            if draw(st.booleans()):
                copied = draw(st.integers(0, len(logs[leader])))
                if copied >= _common(logs[leader], logs[follower]):
                    logs[follower] = logs[leader][:copied]
    leader, follower = draw(st.permutations([0, 1, 2]))[:2]
    return logs[leader], logs[follower]


def _common(one: list[int], other: list[int]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@given(histories())
def test_any_follower_comes_to_what_it_shares_with_its_leader_and_not_below(
    pair: tuple[list[int], list[int]],
) -> None:
    leader, follower = pair
    shared = _common(leader, follower)
    # A leader has begun its own epoch, which is above all others.
    epochs = LeaderEpochs(epochs_of(leader).entries)
    epochs.assign(100, len(leader))
    for _ in range(20):
        own = epochs_of(follower)
        last = own.epoch_of(len(follower) - 1) if follower else -1
        diverging = find_divergence(epochs, len(leader), len(follower), last)
        if diverging is None:
            break
        cut = truncation_offset(own, len(follower), diverging)
        assert cut < len(follower), "every answer brings it further"
        follower = follower[:cut]
        assert len(follower) >= shared, "nothing that both have is given up"
    assert follower == leader[: len(follower)]
