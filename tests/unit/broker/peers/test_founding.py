"""Who founds a cluster, when, and with whom."""

from uuid import UUID

import pytest

from millstream.broker.peers.errors import CannotJoin
from millstream.broker.peers.founding import GRACE_SECONDS, Found, Join, next_step
from millstream.broker.peers.hello import Welcome
from millstream.cluster.raft.membership import ReplicaKey

SEEDS = ("a:1", "b:1", "c:1")
A, B, C = (ReplicaKey(number, UUID(int=number)) for number in (1, 2, 3))


def new(replica: ReplicaKey, seeds: tuple[str, ...] = SEEDS) -> Welcome:
    return Welcome("", replica, seeds)


def test_the_first_seed_founds_as_soon_as_all_are_there() -> None:
    answers = {"a:1": new(A), "b:1": new(B), "c:1": new(C)}
    assert next_step(A, SEEDS, answers, 0.0) == Found((A, B, C))


def test_a_majority_is_enough_after_a_while() -> None:
    answers = {"a:1": new(A), "c:1": new(C)}
    assert next_step(A, SEEDS, answers, GRACE_SECONDS / 2) is None
    assert next_step(A, SEEDS, answers, GRACE_SECONDS) == Found((A, C))


def test_without_a_majority_nobody_founds_ever() -> None:
    assert next_step(A, SEEDS, {"a:1": new(A)}, 1e9) is None


def test_the_other_seeds_wait_for_the_first_and_then_join() -> None:
    assert next_step(B, SEEDS, {"b:1": new(B), "c:1": new(C)}, 1e9) is None
    assert next_step(B, SEEDS, {"a:1": new(A), "b:1": new(B)}, 0.0) == Join()


def test_a_first_seed_that_lost_its_disk_finds_the_cluster_it_founded() -> None:
    answers = {"a:1": new(A), "b:1": Welcome("c" * 22, B, SEEDS, (B, C)), "c:1": new(C)}
    assert next_step(A, SEEDS, answers, 1e9) == Join()


def test_seeds_that_differ_are_named() -> None:
    answers = {"a:1": new(A), "b:1": new(B, ("b:1", "x:1"))}
    with pytest.raises(CannotJoin, match="b:1,x:1"):
        next_step(A, SEEDS, answers, 0.0)


def test_two_seeds_of_one_id_found_nothing() -> None:
    answers = {"a:1": new(A), "b:1": new(B), "c:1": new(ReplicaKey(2, UUID(int=9)))}
    with pytest.raises(CannotJoin, match="--node-id"):
        next_step(A, SEEDS, answers, 0.0)


def test_one_node_behind_two_seeds_counts_once() -> None:
    assert next_step(A, SEEDS, {"a:1": new(A), "b:1": new(A)}, 1e9) is None
