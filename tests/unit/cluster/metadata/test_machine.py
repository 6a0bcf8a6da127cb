"""The state machine: own proposals, other leaders' entries, and snapshots that skip changes."""

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.machine import MetadataMachine, Records, UnknownRecords
from millstream.cluster.metadata.records import (
    BrokerRegistered,
    ClusterCreated,
    ConfigChanged,
    ConfigResource,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    encode_records,
)
from millstream.cluster.raft.entries import Entry, EntryKind


def entry(index: int, data: bytes) -> Entry:
    return Entry(index, 1, EntryKind.DATA, data)


def topic(name: str, number: int = 1, partitions: int = 1) -> Records:
    topic_id = uuid.UUID(int=number)
    return TopicCreated(name, topic_id), *(
        PartitionCreated(topic_id, index, (1,), (1,), 1) for index in range(partitions)
    )


def test_what_is_foreseen_is_latest_and_what_is_committed_is_the_image() -> None:
    machine = MetadataMachine()
    heard: list[Records] = []
    machine.subscribe(lambda _old, _new, records: heard.append(records))
    first, second = machine.foresee(topic("a", 1)), machine.foresee(topic("b", 2))
    assert (set(machine.image.topics), set(machine.latest.topics)) == (set(), {"a", "b"})
    machine.apply([entry(2, first), entry(3, second)])
    assert set(machine.image.topics) == {"a", "b"}
    assert machine.latest is machine.image
    assert heard == [topic("a", 1) + topic("b", 2)]


def test_another_leaders_entry_takes_the_place_of_what_was_foreseen() -> None:
    machine = MetadataMachine()
    machine.foresee(topic("a"))
    machine.apply([entry(2, encode_records(topic("b")))])
    assert set(machine.latest.topics) == set(machine.image.topics) == {"b"}


def test_equal_bytes_from_another_leader_are_not_taken_for_ones_own() -> None:
    machine = MetadataMachine()
    machine.apply([entry(2, encode_records(topic("x", 9)))])
    data = machine.foresee(topic("a"))
    machine.apply([entry(3, bytes(bytearray(data)))])
    assert set(machine.image.topics) == {"x", "a"}


def test_a_snapshot_tells_followers_what_it_skipped() -> None:
    ahead, behind = MetadataMachine(), MetadataMachine()
    for machine in (ahead, behind):
        machine.apply([entry(2, encode_records(topic("gone", 1))), entry(3, encode_records(topic("t", 2)))])
    ahead.apply([entry(4, encode_records([TopicDeleted(uuid.UUID(int=1)), *topic("new", 3, 2)]))])
    heard: list[Records] = []
    behind.subscribe(lambda _old, _new, records: heard.append(records))
    behind.restore(ahead.snapshot()())
    assert behind.image == ahead.image
    assert heard == [(TopicDeleted(uuid.UUID(int=1)), *topic("new", 3, 2))]


def test_records_that_are_not_known_stop_the_machine() -> None:
    with pytest.raises(UnknownRecords, match="newer version"):
        MetadataMachine().apply([entry(2, b"\x91\x92\x63\x01")])


def image_of(topics: dict[int, tuple[int, int]], configs: dict[str, str], next_id: int) -> MetadataImage:
    records: list[MetadataRecord] = [ClusterCreated("c" * 22), BrokerRegistered(1, 0, uuid.UUID(int=9), ())]
    for number, (partitions, epoch) in topics.items():
        name, topic_id = f"topic-{number // 2}-{number}", uuid.UUID(int=number + 1)
        records += topic(name, number + 1, partitions)
        records.append(PartitionChanged(topic_id, 0, (1,), (1,), 1, epoch, epoch))
        records += [ConfigChanged(ConfigResource.TOPIC, name, key, value) for key, value in configs.items()]
    records += [ConfigChanged(ConfigResource.BROKER, name, "k", value) for name, value in configs.items()]
    return MetadataImage().apply([*records, ProducerIdsAllocated(next_id)])


TOPICS = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(1, 3), st.integers(0, 2)))
CONFIGS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))


@given(st.lists(st.tuples(TOPICS, CONFIGS), min_size=2, max_size=2))
def test_the_difference_applied_to_the_old_gives_the_new(
    states: Sequence[tuple[dict[int, tuple[int, int]], dict[str, str]]],
) -> None:
    (old_topics, old_configs), (new_topics, new_configs) = states
    # Partitions of a topic are only ever added.
    grown = {
        number: (max(count, old_topics.get(number, (1, 0))[0]), epoch)
        for number, (count, epoch) in new_topics.items()
    }
    old, new = image_of(old_topics, old_configs, 1), image_of(grown, new_configs, 2)
    assert old.apply(difference(old, new)) == new
    assert not list(difference(new, new))
