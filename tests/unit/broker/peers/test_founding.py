"""Who founds a cluster, when, and with whom."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from millstream.broker.peers.founding import (
    CannotFound,
    CannotJoin,
    Join,
    KnownCluster,
    Propose,
    Situation,
    Wait,
    chosen_voters,
    next_step,
    refusal_to_promise,
)
from millstream.broker.peers.hello import Welcome
from millstream.cluster.raft.membership import MemberKey

SEEDS = ("a:1", "b:1", "c:1")
# Node 3 is the first of the seeds by its address: what counts are ids.
C, B, A = (MemberKey(number, UUID(int=number)) for number in (1, 2, 3))
ID = "c" * 22


def new(member: MemberKey, seeds: tuple[str, ...] = SEEDS) -> Welcome:
    return Welcome("", member, seeds)


EMPTY = {"a:1": new(A), "b:1": new(B), "c:1": new(C)}


def seen(me: MemberKey, there: dict[str, Welcome]) -> Situation:
    return Situation(me, SEEDS, there, tuple(there.values()))


def reason(now: Situation) -> str:
    step = next_step(now)
    assert isinstance(step, Wait)
    return step.reason


def test_the_lowest_seed_proposes_when_all_are_there_whatever_its_address() -> None:
    assert next_step(seen(C, EMPTY)) == Propose((C, B, A))
    assert "node 1 founds" in reason(seen(A, EMPTY))


@pytest.mark.parametrize("me", [A, B, C])
def test_without_one_of_the_seeds_nobody_founds(me: MemberKey) -> None:
    for absent in SEEDS:
        there = {seed: each for seed, each in EMPTY.items() if seed != absent}
        told = reason(seen(me, there))
        assert absent in told
        assert "start them" in told
        is_here = any(each.member == me for each in there.values())
        assert ("millstream cluster found --with" in told) == is_here


def test_alone_a_node_is_not_told_to_found_with_fewer() -> None:
    assert "cluster found" not in reason(seen(A, {"a:1": new(A)}))


def test_a_seed_that_lost_its_disk_finds_the_cluster_it_founded() -> None:
    there = {**EMPTY, "b:1": Welcome(ID, B, SEEDS, (B, C))}
    assert next_step(seen(C, there)) == Join()


def test_nobody_founds_once_a_node_called_that_knows_of_a_cluster() -> None:
    """The caller is no seed: none of the seeds has to know of it."""
    now = replace(seen(C, EMPTY), known=KnownCluster(ID, 4, "d:1"))
    assert "node 4 at d:1 knows of cluster" in reason(now)
    with pytest.raises(CannotFound, match="node 4"):
        chosen_voters(now, (1, 2))
    assert refusal_to_promise(now, B, (A, B, C)) is not None


def test_what_another_seed_heard_counts_too() -> None:
    now = seen(C, {**EMPTY, "a:1": replace(new(A), heard=ID)})
    assert ID in reason(now)
    assert refusal_to_promise(now, B, (A, B, C)) is not None


def test_a_node_that_is_no_seed_founds_nothing() -> None:
    stranger = MemberKey(0, UUID(int=9))
    assert "without this node" in reason(seen(stranger, EMPTY))


def test_seeds_that_differ_are_named() -> None:
    with pytest.raises(CannotJoin, match="b:1,x:1"):
        next_step(seen(A, {"a:1": new(A), "b:1": new(B, ("b:1", "x:1"))}))


def test_two_seeds_of_one_id_found_nothing() -> None:
    with pytest.raises(CannotJoin, match="--node-id"):
        next_step(seen(A, {**EMPTY, "c:1": new(MemberKey(2, UUID(int=9)))}))


def test_one_node_behind_two_seeds_counts_once() -> None:
    assert "two are one node" in reason(seen(A, {**EMPTY, "b:1": new(A)}))


def test_a_promise_is_for_one_founder() -> None:
    now = seen(A, EMPTY)
    assert refusal_to_promise(now, C, (A, B, C)) is None
    promised = replace(now, promised=C)
    assert refusal_to_promise(promised, C, (A, B, C)) is None
    refusal = refusal_to_promise(promised, B, (A, B))
    assert refusal is not None
    assert "node 1 began to found" in refusal
    assert next_step(promised) == Join(), "it waits for that founder, and founds nothing itself"
    with pytest.raises(CannotFound, match="node 1 began"):
        chosen_voters(promised, (2, 3))


def test_a_founder_with_another_disk_has_no_promise() -> None:
    other = MemberKey(1, UUID(int=77))
    promised = replace(seen(A, {**EMPTY, "c:1": new(other)}), promised=C)
    assert refusal_to_promise(promised, other, (A, B, other)) is not None


def test_a_promise_follows_a_founder_that_promised_another() -> None:
    """Neither of two that were promised something could found otherwise."""
    there = {**EMPTY, "b:1": replace(new(B), promised=C)}
    assert refusal_to_promise(replace(seen(A, there), promised=B), C, (A, B, C)) is None


def test_whoever_has_promises_already_goes_on() -> None:
    there = {**EMPTY, "a:1": replace(new(A), promised=B)}
    assert next_step(seen(B, there)) == Propose((C, B, A))
    assert "node 2 founds" in reason(seen(C, there))


def test_a_promise_is_not_given_for_another_disk() -> None:
    assert "another data directory" in str(
        refusal_to_promise(seen(A, EMPTY), C, (MemberKey(3, UUID(int=8)), B, C))
    )


def test_an_operator_founds_with_a_majority() -> None:
    there = {"a:1": new(A), "b:1": new(B)}
    assert chosen_voters(seen(B, there), (2, 3)) == (B, A)
    with pytest.raises(CannotFound, match="at least 2"):
        chosen_voters(seen(B, there), (2,))
    with pytest.raises(CannotFound, match="node 1 is not among"):
        chosen_voters(seen(B, there), (1, 2))
    with pytest.raises(CannotFound, match="node 2 was asked"):
        chosen_voters(seen(B, EMPTY), (1, 3))
    with pytest.raises(CannotFound, match="there is a cluster"):
        chosen_voters(seen(B, {**there, "c:1": Welcome(ID, C, SEEDS, (C,))}), (2, 3))
