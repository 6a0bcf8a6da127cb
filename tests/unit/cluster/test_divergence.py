"""Where two logs part: any histories of leaders and followers are brought together without losing what they share."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.replication import EpochEnd, find_divergence, truncation_offset
from millstream.storage.leader_epochs import LeaderEpochs


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
