"""Server-side assignors."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.groups import assignors
from millstream.coordinator.groups.assignors import AssignmentInput, assign_range, assign_uniform
from millstream.coordinator.groups.partition_sets import from_pairs, pairs
from millstream.coordinator.groups.records import PartitionSet

TOPICS = [UUID(int=n) for n in range(1, 5)]
Assignor = Callable[[AssignmentInput], dict[str, PartitionSet]]


def an_input(
    subscribed: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
    previous: dict[str, PartitionSet] | None = None,
) -> AssignmentInput:
    return AssignmentInput(subscribed, {m: m for m in subscribed}, counts, previous or {})


subscriptions = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(8)]),
    st.frozensets(st.sampled_from(TOPICS), min_size=1),
    min_size=1,
)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))


@pytest.mark.parametrize("assignor", [assign_range, assign_uniform])
@given(subscribed=subscriptions, counts=counts)
def test_every_partition_goes_to_one_subscriber(
    assignor: Assignor, subscribed: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    assigned = assignor(an_input(subscribed, counts))
    places = [place for partitions in assigned.values() for place in pairs(partitions)]
    wanted = {
        (topic, p)
        for topic, n in counts.items()
        if any(topic in topics for topics in subscribed.values())
        for p in range(n)
    }
    assert len(places) == len(set(places))
    assert set(places) == wanted
    for member, partitions in assigned.items():
        assert set(partitions) <= subscribed[member]


@given(members=st.integers(1, 9), counts=counts)
def test_uniform_is_equal_to_one_partition_when_all_read_the_same(
    members: int, counts: dict[UUID, int]
) -> None:
    topics = frozenset(TOPICS)
    assigned = assign_uniform(an_input({f"m{n}": topics for n in range(members)}, counts))
    loads = [len(list(pairs(partitions))) for partitions in assigned.values()]
    assert max(loads) - min(loads) <= 1


@given(subscribed=subscriptions, counts=counts, data=st.data())
def test_uniform_moves_nothing_when_nothing_changed(
    subscribed: dict[str, frozenset[UUID]], counts: dict[UUID, int], data: st.DataObject
) -> None:
    first = assign_uniform(an_input(subscribed, counts))
    assert assign_uniform(an_input(subscribed, counts, first)) == first


@given(members=st.integers(2, 8), partitions=st.integers(1, 40))
def test_uniform_moves_only_what_a_newcomer_gets(members: int, partitions: int) -> None:
    topics = frozenset(TOPICS[:1])
    before = assign_uniform(an_input({f"m{n}": topics for n in range(members)}, {TOPICS[0]: partitions}))
    grown = {f"m{n}": topics for n in range(members + 1)}
    after = assign_uniform(an_input(grown, {TOPICS[0]: partitions}, before))
    for member, kept in before.items():
        assert set(pairs(after[member])) <= set(pairs(kept))


@given(subscribed=subscriptions, counts=counts)
def test_uniform_leaves_no_reader_two_behind_another_of_the_same_topic(
    subscribed: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    assigned = assign_uniform(an_input(subscribed, counts))
    loads = {member: len(list(pairs(partitions))) for member, partitions in assigned.items()}
    for member, partitions in assigned.items():
        for topic in partitions:
            for other, topics in subscribed.items():
                if topic in topics:
                    assert loads[member] - loads[other] <= 1


@given(subscribed=subscriptions, counts=counts, later=subscriptions)
def test_different_subscriptions_are_assigned_as_the_simple_way_does_it(
    subscribed: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
    later: dict[str, frozenset[UUID]],
) -> None:
    """At first, and when the members or what they read have changed."""
    previous: dict[str, PartitionSet] = {}
    for members in (subscribed, later):
        if len(set(members.values())) > 1:
            simple = simply_assigned(members, counts, previous)
            previous = assign_uniform(an_input(members, counts, previous))
            assert previous == simple


def simply_assigned(
    subscribed: dict[str, frozenset[UUID]], counts: dict[UUID, int], previous: dict[str, PartitionSet]
) -> dict[str, PartitionSet]:
    """Each partition, one by one, looks at all members."""
    held: dict[str, list[tuple[UUID, int]]] = {member: [] for member in sorted(subscribed)}

    def least_of(topic: UUID) -> str:
        return min((m for m in held if topic in subscribed[m]), key=lambda m: len(held[m]))

    readers = {topic: sum(topic in topics for topics in subscribed.values()) for topic in counts}
    places = [(topic, p) for topic in sorted(counts) if readers[topic] for p in range(counts[topic])]
    for member, mine in held.items():
        former = pairs(previous.get(member, {}))
        mine.extend(place for place in former if place in places and place[0] in subscribed[member])
    for place in sorted(places, key=lambda place: (readers[place[0]], place)):
        if not any(place in mine for mine in held.values()):
            held[least_of(place[0])].append(place)
    moved = True
    while moved:
        moved = False
        givers = {place: member for member, mine in held.items() for place in mine}
        for place in sorted(places, key=lambda place: -len(held[givers[place]])):
            taker = least_of(place[0])
            if len(held[givers[place]]) - len(held[taker]) >= 2:
                held[givers[place]].remove(place)
                held[taker].append(place)
                givers[place] = taker
                moved = True
    return {member: from_pairs(mine) for member, mine in held.items()}


def test_range_gives_equal_numbers_of_two_topics_to_one_member() -> None:
    topics = frozenset(TOPICS[:2])
    assigned = assign_range(an_input({"a": topics, "b": topics}, {TOPICS[0]: 4, TOPICS[1]: 4}))
    assert assigned["a"] == {TOPICS[0]: frozenset({0, 1}), TOPICS[1]: frozenset({0, 1})}


def test_range_orders_static_members_by_their_instance_id() -> None:
    topics = frozenset(TOPICS[:1])
    given = AssignmentInput({"zz": topics, "aa": topics}, {"zz": "1", "aa": "2"}, {TOPICS[0]: 2}, {})
    assert assign_range(given)["zz"] == {TOPICS[0]: frozenset({0})}


def test_a_hundred_members_and_a_thousand_partitions_are_assigned_at_once() -> None:
    topics = frozenset(TOPICS[:1])
    assigned = assign_uniform(an_input({f"m{n:03}": topics for n in range(100)}, {TOPICS[0]: 1000}))
    assert {len(list(pairs(partitions))) for partitions in assigned.values()} == {10}


def test_the_work_of_levelling_is_bounded_and_done_with_the_next_assignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each reads two topics, one of them with its neighbour: what the first has too much must pass through all."""
    monkeypatch.setattr(assignors, "_MOST_LOOKED_AT", 1_000)
    topics = [UUID(int=n) for n in range(1, 12)]
    subscribed = {f"m{n:02}": frozenset(topics[n : n + 2]) for n in range(10)}
    counts = dict.fromkeys(topics, 1) | {topics[0]: 10, topics[1]: 90}

    def spread(previous: dict[str, PartitionSet]) -> tuple[int, dict[str, PartitionSet]]:
        assigned = assign_uniform(an_input(subscribed, counts, previous))
        loads = [len(list(pairs(partitions))) for partitions in assigned.values()]
        assert sum(loads) == sum(counts.values())
        return max(loads) - min(loads), assigned

    looked_at = 0
    least_of = assignors._Loads.least_of

    def counted(loads: assignors._Loads, readers: int, most: int) -> int:
        nonlocal looked_at
        looked_at += 1
        return least_of(loads, readers, most)

    monkeypatch.setattr(assignors._Loads, "least_of", counted)
    first, assigned = spread({})
    assert looked_at <= sum(counts.values()) + 1_000 + sum(counts.values())
    assert spread(assigned)[0] <= first


def test_what_a_member_keeps_is_not_looked_at_one_by_one() -> None:
    """It is done on the event loop, and a group may have a hundred thousand partitions."""
    topics = frozenset(TOPICS)
    members = {f"m{n}": topics for n in range(3)}
    counts = dict.fromkeys(TOPICS, 3)
    before = assign_uniform(an_input(members, counts))
    after = assign_uniform(an_input(members, counts, before))
    assert all(after[member] is before[member] for member in members)
