"""Judges a consumer group by the answers to its members: commits stay, offsets never go back, one owner each."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from millstream.testing.history.operations import Anomaly, History, Kind, Outcome


@dataclass(frozen=True, slots=True)
class Owned:
    """A member was assigned a partition in a generation, and knew it at `end`."""

    member: str
    generation: int
    key: str
    end: float


@dataclass(frozen=True, slots=True)
class Commit:
    """`end` is infinite if no answer came."""

    generation: int
    key: str
    offset: int
    start: float
    end: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Position:
    """The committed offset in the coordinator's answer; -1 for none."""

    key: str
    offset: int
    start: float
    end: float


@dataclass(slots=True)
class GroupHistory:
    """The history of a group whose members commit what they have read, one commit after the other, again if in
    doubt.
    """

    group_id: str
    owned: list[Owned] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    readers: set[str] = field(default_factory=set)
    """The processes of the members' polls."""
    is_incremental: bool = False
    """Whether members enter a new generation one by one (KIP-848), each partition in its own time."""

    @property
    def acknowledged(self) -> int:
        return sum(commit.outcome is Outcome.OK for commit in self.commits)


def judge_group(group: GroupHistory, history: History) -> list[Anomaly]:
    checks = (_lost_commits(group), _steps_back(group), _from_nowhere(group), _two_owners(group))
    return [
        *(anomaly for check in checks for anomaly in check),
        *_old_generations(group),
        *_unread(group, history),
    ]


def _lost_commits(group: GroupHistory) -> Iterator[Anomaly]:
    for position in group.positions:
        for commit in group.commits:
            if (
                commit.outcome is Outcome.OK
                and commit.key == position.key
                and commit.end < position.start
                and commit.offset > position.offset
            ):
                yield Anomaly(
                    Kind.LOST_COMMIT,
                    position.key,
                    f"{group.group_id} is at {position.offset}; {commit.offset} was acknowledged before",
                )


def _steps_back(group: GroupHistory) -> Iterator[Anomaly]:
    for later in group.positions:
        for earlier in group.positions:
            if earlier.key == later.key and earlier.end < later.start and earlier.offset > later.offset:
                yield Anomaly(
                    Kind.POSITION_WENT_BACK,
                    later.key,
                    f"{group.group_id} is at {later.offset}; it was said to be at {earlier.offset} before",
                )


def _from_nowhere(group: GroupHistory) -> Iterator[Anomaly]:
    wanted = {(commit.key, commit.offset) for commit in group.commits}
    for position in group.positions:
        if position.offset >= 0 and (position.key, position.offset) not in wanted:
            yield Anomaly(
                Kind.POSITION_FROM_NOWHERE, position.key, f"{group.group_id} is at {position.offset}"
            )


def _two_owners(group: GroupHistory) -> Iterator[Anomaly]:
    owners: dict[tuple[int, str], str] = {}
    for owned in group.owned:
        owner = owners.setdefault((owned.generation, owned.key), owned.member)
        if owner != owned.member:
            yield Anomaly(
                Kind.TWO_OWNERS,
                owned.key,
                f"{owner} and {owned.member} in generation {owned.generation} of {group.group_id}",
            )


def _old_generations(group: GroupHistory) -> Iterator[Anomaly]:
    """Once a partition is assigned in a generation, members of older generations commit nothing.

    If members enter generations one by one, nothing of that partition.
    """
    for commit in group.commits:
        if commit.outcome is not Outcome.OK:
            continue
        newest = max(
            (
                owned.generation
                for owned in group.owned
                if owned.end < commit.start and (owned.key == commit.key or not group.is_incremental)
            ),
            default=-1,
        )
        if newest > commit.generation:
            yield Anomaly(
                Kind.COMMIT_OF_OLD_GENERATION,
                commit.key,
                f"{commit.offset} in generation {commit.generation} of {group.group_id}; {newest} had begun",
            )


def _unread(group: GroupHistory, history: History) -> Iterator[Anomaly]:
    """All messages below a committed offset were read by a member."""
    read: defaultdict[str, set[int]] = defaultdict(set)
    there: defaultdict[str, set[int]] = defaultdict(set)
    for poll in history.polls:
        for seen in poll.records:
            if poll.is_final:
                there[seen.key].add(seen.offset)
            if poll.process in group.readers:
                read[seen.key].add(seen.offset)
    for key, offsets in there.items():
        committed = [each.offset for each in group.commits if each.key == key and each.outcome is Outcome.OK]
        missed = sorted(each for each in offsets - read[key] if each < max(committed, default=0))
        if missed:
            yield Anomaly(
                Kind.COMMITTED_UNREAD,
                key,
                f"{group.group_id} committed {max(committed)}; nobody of it read {missed[:5]}",
            )
