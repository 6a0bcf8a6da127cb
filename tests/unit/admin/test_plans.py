"""What a rebalance and the removal of a node would move, from what the cluster says of itself."""

import pytest

from millstream.admin.cluster_view import BrokerState, BrokerView, ClusterView, PartitionView
from millstream.admin.plans import evacuated, rebalanced, with_factor
from millstream.client.errors import ClientError


def cluster(brokers: int, *partitions: tuple[int, ...], fenced: tuple[int, ...] = ()) -> ClusterView:
    states = (BrokerState.LIVE, BrokerState.FENCED)
    return ClusterView(
        "c",
        1,
        tuple(
            BrokerView(number, f"n{number}:9092", None, states[number in fenced], "voter", 5, 0, 0)
            for number in range(1, brokers + 1)
        ),
        tuple(
            PartitionView("t", index, replicas[0], replicas, replicas)
            for index, replicas in enumerate(partitions)
        ),
        0,
    )


def test_a_removed_nodes_replicas_go_to_those_that_have_least() -> None:
    view = cluster(4, (1, 2, 3), (2, 3, 4), (3, 4, 1))
    assert [(each.index, each.replicas) for each in evacuated(view, 2, "balanced")] == [
        (0, (1, 4, 3)),
        (1, (1, 3, 4)),
    ]


def test_only_the_partitions_of_a_removed_node_move_on_the_ring() -> None:
    view = cluster(4, *[(1,), (2,), (3,), (4,)] * 6)
    moves = evacuated(view, 2, "ring")
    assert [each.before for each in moves] == [(2,)] * 6
    assert sorted(each.replicas[0] for each in moves) == [1, 1, 3, 3, 4, 4]


def test_a_node_cannot_go_when_nobody_is_left_for_its_replicas() -> None:
    with pytest.raises(ClientError, match="no other live broker is left"):
        evacuated(cluster(3, (1, 2, 3)), 3, "balanced")
    with pytest.raises(ClientError, match="no other live broker is left"):
        evacuated(cluster(4, (1, 2, 3), fenced=(4,)), 3, "balanced")


@pytest.mark.parametrize("placement", ["ring", "modulo", "balanced"])
def test_a_plan_keeps_the_number_of_replicas_and_uses_live_brokers(placement: str) -> None:
    view = cluster(4, *[(1, 2)] * 12, fenced=(2,))
    for each in rebalanced(view, placement):
        assert len(each.replicas) == 2
        assert set(each.replicas) <= {1, 3, 4}


def test_a_plan_that_is_carried_out_is_empty_the_next_time() -> None:
    view = cluster(3, *[(1, 2)] * 9)
    after = {each.index: each.replicas for each in rebalanced(view, "ring")}
    moved = [after.get(each.index, each.replicas) for each in view.partitions]
    assert rebalanced(cluster(3, *moved), "ring") == []


def test_more_replicas_than_brokers_cannot_be_placed() -> None:
    with pytest.raises(ClientError, match="3 replicas and there would be 2 brokers"):
        rebalanced(cluster(3, (1, 2, 3), fenced=(2,)), "ring")


@pytest.mark.parametrize(("factor", "expected"), [(1, (2,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 3, 4))])
def test_another_number_of_replicas_keeps_the_leader_and_those_in_sync(
    factor: int, expected: tuple[int, ...]
) -> None:
    view = cluster(4, (1, 2, 3))
    partition = PartitionView("t", 0, 2, (1, 2, 3), (1, 2))
    moves = with_factor(view, [partition], factor, "balanced")
    assert [each.replicas for each in moves] == ([] if expected == (1, 2, 3) else [expected])


def test_more_replicas_than_brokers_are_refused() -> None:
    view = cluster(3, (1,))
    with pytest.raises(ClientError, match="no other live broker is left"):
        with_factor(view, view.partitions, 4, "balanced")


def test_health() -> None:
    assert cluster(3, (1, 2, 3)).is_healthy
    assert not cluster(3, (1, 2, 3), fenced=(3,)).is_healthy
    assert not cluster(3, (-1, 2)).is_healthy
