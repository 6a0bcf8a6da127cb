"""Where partitions go, and what moves when brokers come."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.placement import (
    PLACEMENTS,
    Candidate,
    HashRing,
    Placed,
    Placement,
    Replicas,
    Ring,
    Wanted,
    placement_named,
    with_load,
)


def brokers(*ids: int, racks: Sequence[str] = ()) -> list[Candidate]:
    return [
        Candidate(broker, racks[place % len(racks)] if racks else None) for place, broker in enumerate(ids)
    ]


def moved(placement: Placement, before: list[Candidate], after: list[Candidate], count: int) -> int:
    wanted = Wanted("orders", 0, count, 1)
    pairs = zip(placement.place(before, wanted), placement.place(after, wanted), strict=True)
    return sum(old != new for old, new in pairs)


def leaders(placed: list[Replicas]) -> Counter[int]:
    return Counter(replicas[0] for replicas in placed)


def test_a_fourth_broker_takes_three_of_twelve_keys_on_the_ring() -> None:
    before, after = HashRing(range(3)), HashRing(range(4))
    old = {key: next(before.from_key(str(key))) for key in range(12)}
    new = {key: next(after.from_key(str(key))) for key in range(12)}
    assert Counter(old.values()) == {0: 4, 1: 4, 2: 4}
    assert Counter(new.values()) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert {key: new[key] for key in old if old[key] != new[key]} == dict.fromkeys(
        (key for key in new if new[key] == 3), 3
    )


def test_a_fourth_broker_moves_three_of_twelve_partitions_by_ring_and_most_by_modulo() -> None:
    before, after = brokers(1, 2, 3), brokers(1, 2, 3, 4)
    assert moved(placement_named("ring"), before, after, 12) == 3
    assert moved(placement_named("modulo"), before, after, 12) == 9


def test_twelve_partitions_over_three_brokers_are_four_each_and_three_move_to_a_fourth() -> None:
    wanted = Wanted("telemetry", 0, 12, 1)
    three, four = Ring().place(brokers(1, 2, 3), wanted), Ring().place(brokers(1, 2, 3, 4), wanted)
    assert leaders(three) == {1: 4, 2: 4, 3: 4}
    assert leaders(four) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert [after for before, after in zip(three, four, strict=True) if before != after] == [(4,)] * 3


@pytest.mark.parametrize("ids", [(0, 1, 2), (10, 20, 30), (7, 100, 5000), (1, 2, 4)])
def test_twelve_partitions_are_four_each_whatever_the_brokers_ids(ids: tuple[int, int, int]) -> None:
    wanted = Wanted("telemetry", 0, 12, 1)
    assert leaders(Ring().place(brokers(*ids), wanted)) == dict.fromkeys(ids, 4)
    assert leaders(Ring().place(brokers(*ids, 9), wanted)) == dict.fromkeys((*ids, 9), 3)


def test_ids_from_one_have_the_places_of_ids_from_zero() -> None:
    from_zero = HashRing(range(3))
    from_one = HashRing(range(1, 4))
    for key in map(str, range(50)):
        assert [broker - 1 for broker in from_one.from_key(key)] == list(from_zero.from_key(key))


def test_a_broker_that_leaves_the_ring_renames_no_other() -> None:
    before, after = HashRing((1, 2, 3, 4)), HashRing((1, 3, 4))
    for key in map(str, range(200)):
        assert [broker for broker in before.from_key(key) if broker != 2] == list(after.from_key(key))


def test_topics_of_one_partition_do_not_all_land_on_one_broker_of_the_ring() -> None:
    candidates, placed = brokers(1, 2, 3), []
    for number in range(30):
        (replicas,) = Ring().place(with_load(candidates, placed), Wanted(f"t{number}", 0, 1, 2))
        placed.append(replicas)
    assert leaders(placed) == {1: 10, 2: 10, 3: 10}
    kept = Counter(broker for replicas in placed for broker in replicas)
    assert max(kept.values()) - min(kept.values()) <= 2


def test_the_ring_takes_as_many_virtual_nodes_as_it_is_told() -> None:
    many, few = placement_named("ring", 500), placement_named("ring", 1)
    wanted = Wanted("t", 0, 40, 1)
    assert many.place(brokers(1, 2, 3), wanted) != few.place(brokers(1, 2, 3), wanted)


def cluster(count: int, *topics: tuple[str, int, int], placement: str) -> list[Placed]:
    """Topics (name, partitions, replicas) made one after the other on brokers 1 to `count`."""
    candidates = brokers(*range(1, count + 1))
    made: list[Placed] = []
    for name, partitions, factor in topics:
        load = with_load(candidates, (each.replicas for each in made))
        placed = placement_named(placement).place(load, Wanted(name, 0, partitions, factor, len(made)))
        made += [Placed(name, index, replicas) for index, replicas in enumerate(placed)]
    return made


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_cluster_that_was_placed_by_it_needs_no_rearrangement(name: str) -> None:
    made = cluster(3, ("a", 12, 3), ("b", 1, 2), ("c", 5, 2), placement=name)
    assert placement_named(name).arrange(brokers(1, 2, 3), made) == [each.replicas for each in made]


def test_balanced_moves_a_quarter_of_the_replicas_to_a_fourth_broker() -> None:
    made = cluster(3, ("a", 12, 2), placement="balanced")
    arranged = placement_named("balanced").arrange(brokers(1, 2, 3, 4), made)
    moved_replicas = sum(len(set(new) - set(old.replicas)) for old, new in zip(made, arranged, strict=True))
    assert moved_replicas == 6
    assert Counter(broker for replicas in arranged for broker in replicas) == dict.fromkeys((1, 2, 3, 4), 6)
    assert leaders(arranged) == dict.fromkeys((1, 2, 3, 4), 3)


def test_balanced_replaces_a_broker_that_is_gone_and_keeps_racks_apart() -> None:
    candidates = brokers(1, 2, 4, racks="abc")
    made = [Placed("t", index, (1, 2, 3)) for index in range(4)]
    arranged = placement_named("balanced").arrange(candidates, made)
    assert all(set(replicas) == {1, 2, 4} for replicas in arranged)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_every_candidate_may_take_the_place_of_a_broker_that_leaves(name: str) -> None:
    candidates = brokers(1, 2, 3, 4)
    offered = placement_named(name).substitutes(candidates, Placed("t", 7, (5,)))
    assert sorted(each.broker_id for each in offered) == [1, 2, 3, 4]


def test_balanced_gives_leaders_and_replicas_to_who_has_least() -> None:
    busy = [Candidate(1, None, leaders=6, replicas=6), Candidate(2), Candidate(3)]
    assert leaders(placement_named("balanced").place(busy, Wanted("t", 0, 12, 1))) == {2: 6, 3: 6}
    even = placement_named("balanced").place(brokers(1, 2, 3), Wanted("t", 0, 12, 2))
    assert leaders(even) == {1: 4, 2: 4, 3: 4}
    assert Counter(broker for replicas in even for broker in replicas) == {1: 8, 2: 8, 3: 8}


@pytest.mark.parametrize("name", PLACEMENTS)
@given(
    ids=st.sets(st.integers(0, 50), min_size=1, max_size=9),
    racks=st.lists(st.sampled_from("abc"), max_size=3),
    data=st.data(),
)
def test_replicas_are_distinct_brokers_on_as_many_racks_as_there_are(
    name: str, ids: set[int], racks: list[str], data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(ids)))
    candidates = brokers(*sorted(ids), racks=racks)
    rack_of = {each.broker_id: each.rack for each in candidates}
    placed = placement_named(name).place(candidates, Wanted("t", 2, 7, factor, ordinal=5))
    assert len(placed) == 7
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= ids
        if racks:
            assert len({rack_of[broker] for broker in replicas}) == min(factor, len(set(rack_of.values())))
    again = placement_named(name).place(list(reversed(candidates)), Wanted("t", 2, 7, factor, ordinal=5))
    assert again == placed
