"""Why a partition has no leader, in words."""

import pytest

from millstream.admin.explanations import Leaderless


def partition(
    away: tuple[int, ...] = (),
    has_all: tuple[int, ...] = (),
    compared: tuple[int, ...] = (),
    fenced: tuple[int, ...] = (),
) -> Leaderless:
    return Leaderless("t", 0, (1, 2, 3), away, has_all, compared, fenced)


@pytest.mark.parametrize(
    ("found", "reason", "advice"),
    [
        (partition((1, 2, 3), (2,)), "no replica is alive: nodes 1, 2, 3", "start node 2"),
        (
            partition((2,), (2,)),
            "waits for node 2, which has everything",
            "`millstream cluster remove 2 --force`",
        ),
        (
            partition((3,), (), (1, 3)),
            "nodes 1, 3 are in doubt after an unclean stop; waits for node 3",
            "start node 3",
        ),
        (partition((2,), (2,), (), (2,)), "waits for node 2", "node 2 is up, but fenced"),
        (partition((2, 3), (2, 3), (), (2,)), "waits for nodes 2, 3", "start node 3;"),
        (partition((), (), (1, 3)), "have not reported yet how far the logs reach", "the log of nodes 1, 3"),
        (partition((1,)), "none of the replicas is known to have everything", "start node 1"),
        (partition(), "none of the replicas is known", "`millstream cluster elect --unclean t:0`"),
    ],
)
def test_reason_and_advice(found: Leaderless, reason: str, advice: str) -> None:
    assert reason in found.reason
    assert advice in found.advice
