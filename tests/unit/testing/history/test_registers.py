"""Settings and positions of groups: an order must explain what was acknowledged and what was read."""

from math import inf

import pytest

from millstream.testing.history.groups import Commit, GroupHistory, Position
from millstream.testing.history.operations import Kind, Outcome
from millstream.testing.history.registers import Read, Write, judge_positions, judge_registers

KEY = "t: min.insync.replicas"


def write(value: str, start: float, end: float = inf) -> Write:
    return Write(KEY, value, start, end)


def read(value: str | None, start: float, end: float) -> Read:
    return Read(KEY, value, start, end)


@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        ([], [read(None, 0, 1)]),
        ([write("1", 0, 1), write("2", 2, 3)], [read("2", 4, 5)]),
        ([write("1", 0, 5), write("2", 1, 4)], [read("1", 6, 7)]),
        ([write("1", 0), write("2", 2, 3)], [read("1", 4, 5)]),
        ([write("1", 0, 1), write("2", 2)], [read("1", 3, 4), read("2", 5, 6), read("2", 7, 8)]),
        ([write(str(number), number) for number in range(200)], [read(None, 300, 301)]),
    ],
    ids=["nothing", "in order", "at once", "late and unknown", "unknown and later", "many that nobody read"],
)
def test_accepted(writes: list[Write], reads: list[Read]) -> None:
    assert judge_registers(writes, reads) == []


@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        ([write("1", 0, 1), write("2", 2, 3)], [read("1", 4, 5)]),
        ([write("1", 0, 1)], [read(None, 2, 3)]),
        ([], [read("3", 0, 1)]),
        ([write("1", 2, 3)], [read("1", 0, 1)]),
        ([write("1", 0, 1), write("2", 2)], [read("2", 3, 4), read("1", 5, 6)]),
    ],
    ids=["lost", "lost all", "from nowhere", "from the future", "back again"],
)
def test_rejected(writes: list[Write], reads: list[Read]) -> None:
    assert [each.kind for each in judge_registers(writes, reads)] == [Kind.NOT_LINEARIZABLE]


def test_a_groups_positions() -> None:
    group = GroupHistory("g")
    group.commits = [
        Commit(1, "t-0", 5, 0, 1, Outcome.OK),
        Commit(1, "t-0", 7, 2, inf, Outcome.UNKNOWN),
        Commit(1, "t-0", 9, 4, 5, Outcome.FAILED),
    ]
    group.positions = [Position("t-1", -1, 0, 1), Position("t-0", 5, 6, 7), Position("t-0", 7, 8, 9)]
    assert judge_positions(group) == []
    group.positions.append(Position("t-0", 5, 10, 11))
    assert [each.key for each in judge_positions(group)] == ["t-0"]
    group.positions = [Position("t-0", 9, 6, 7)]
    assert judge_positions(group), "of a commit that failed"
