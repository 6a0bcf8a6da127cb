"""Where partitions go, and what moves when brokers come."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.placement.candidate import Candidate, Placement, Replicas, Wanted
from millstream.cluster.placement.choice import PLACEMENTS
from millstream.cluster.placement.ring import HashRing, Ring


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
    assert moved(PLACEMENTS["ring"], before, after, 12) == 3
    assert moved(PLACEMENTS["modulo"], before, after, 12) == 9


def test_on_the_ring_partitions_move_only_to_the_new_broker() -> None:
    wanted = Wanted("t", 0, 1000, 1)
    old, new = Ring().place(brokers(1, 2, 3), wanted), Ring().place(brokers(1, 2, 3, 4), wanted)
    changed = [after for before, after in zip(old, new, strict=True) if before != after]
    assert set(changed) == {(4,)}
    assert 170 < len(changed) < 330


def test_the_ring_is_about_even_over_many_partitions() -> None:
    shares = leaders(Ring().place(brokers(1, 2, 3), Wanted("t", 0, 3000, 1)))
    assert all(700 < share < 1300 for share in shares.values())


def test_the_ring_gives_a_partition_its_place_whenever_it_is_made() -> None:
    at_once = Ring().place(brokers(1, 2, 3), Wanted("t", 0, 6, 2))
    later = Ring().place(brokers(3, 2, 1), Wanted("t", 3, 3, 2, ordinal=99))
    assert later == at_once[3:]


def test_balanced_gives_leaders_and_replicas_to_who_has_least() -> None:
    busy = [Candidate(1, None, leaders=6, replicas=6), Candidate(2), Candidate(3)]
    assert leaders(PLACEMENTS["balanced"].place(busy, Wanted("t", 0, 12, 1))) == {2: 6, 3: 6}
    even = PLACEMENTS["balanced"].place(brokers(1, 2, 3), Wanted("t", 0, 12, 2))
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
    placed = PLACEMENTS[name].place(candidates, Wanted("t", 2, 7, factor, ordinal=5))
    assert len(placed) == 7
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= ids
        if racks:
            assert len({rack_of[broker] for broker in replicas}) == min(factor, len(set(rack_of.values())))
    again = PLACEMENTS[name].place(list(reversed(candidates)), Wanted("t", 2, 7, factor, ordinal=5))
    assert again == placed
