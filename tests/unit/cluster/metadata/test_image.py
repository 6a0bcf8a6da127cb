"""The image: applying records, sharing what did not change, and coming back from its own records."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import (
    BrokerRegistered,
    ClusterCreated,
    ConfigChanged,
    ConfigResource,
    Endpoint,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    decode_records,
    encode_records,
)

BROKER = BrokerRegistered(1, 0, uuid.UUID(int=9), (Endpoint("PLAINTEXT", "localhost", 9092),), "r1")


def topic_records(
    number: int, partitions: int, configs: dict[str, str] | None = None
) -> list[MetadataRecord]:
    topic_id, name = uuid.UUID(int=number + 1), f"topic-{number}"
    return [
        TopicCreated(name, topic_id),
        *(ConfigChanged(ConfigResource.TOPIC, name, key, value) for key, value in (configs or {}).items()),
        *(PartitionCreated(topic_id, index, (1,), (1,), 1) for index in range(partitions)),
    ]


def cluster(topics: int = 0, partitions: int = 1) -> MetadataImage:
    records: list[MetadataRecord] = [ClusterCreated("c" * 22), BROKER]
    for number in range(topics):
        records += topic_records(number, partitions)
    return MetadataImage().apply(records)


def test_a_created_topic_is_found_by_name_and_by_id() -> None:
    image = cluster(topics=2, partitions=3)
    topic = image.topics["topic-1"]
    assert image.topics_by_id[uuid.UUID(int=2)] is topic
    assert [p.index for p in topic.partitions] == [0, 1, 2]
    assert image.partition_count == 6


def test_applying_leaves_the_old_image_as_it_was() -> None:
    before = cluster(topics=1)
    after = before.apply([TopicDeleted(uuid.UUID(int=1))])
    assert "topic-0" in before.topics
    assert "topic-0" not in after.topics
    assert after.partition_count == 0


def test_a_change_elsewhere_shares_the_topics() -> None:
    before = cluster(topics=5)
    after = before.apply([ProducerIdsAllocated(1000)])
    assert after.topics is before.topics
    assert after.next_producer_id == 1000


def test_a_topic_deleted_and_created_again_in_one_batch_has_the_new_id_and_no_old_configs() -> None:
    image = cluster().apply(topic_records(0, 2, {"retention.ms": "5"}))
    new_id = uuid.UUID(int=77)
    image = image.apply(
        [
            TopicDeleted(uuid.UUID(int=1)),
            TopicCreated("topic-0", new_id),
            PartitionCreated(new_id, 0, (1,), (1,), 1),
            ConfigChanged(ConfigResource.TOPIC, "topic-0", "segment.ms", "7"),
        ]
    )
    topic = image.topics["topic-0"]
    assert (topic.topic_id, dict(topic.configs), len(topic.partitions)) == (new_id, {"segment.ms": "7"}, 1)
    assert list(image.topics_by_id) == [new_id]


def test_a_partition_change_replaces_the_whole_partition() -> None:
    image = cluster(topics=1, partitions=2).apply(
        [PartitionChanged(uuid.UUID(int=1), 1, (1, 2), (1,), 1, leader_epoch=4, partition_epoch=5)]
    )
    changed = image.topics["topic-0"].partitions[1]
    assert (changed.replicas, changed.isr, changed.leader_epoch, changed.partition_epoch) == (
        (1, 2),
        (1,),
        4,
        5,
    )


def test_a_removed_config_falls_back_to_nothing() -> None:
    image = cluster().apply([ConfigChanged(ConfigResource.BROKER, "", "log.retention.ms", "1")])
    assert image.broker_overrides(1) == {"log.retention.ms": "1"}
    image = image.apply([ConfigChanged(ConfigResource.BROKER, "", "log.retention.ms", None)])
    assert image.broker_configs == {}


def test_a_brokers_own_config_wins_over_the_default_of_all() -> None:
    image = cluster().apply(
        [
            ConfigChanged(ConfigResource.BROKER, "", "log.retention.ms", "1"),
            ConfigChanged(ConfigResource.BROKER, "1", "log.retention.ms", "2"),
        ]
    )
    assert image.broker_overrides(1) == {"log.retention.ms": "2"}
    assert image.broker_overrides(2) == {"log.retention.ms": "1"}


@given(
    topics=st.dictionaries(
        st.integers(0, 50),
        st.tuples(st.integers(1, 4), st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3))),
        max_size=8,
    ),
    broker_configs=st.dictionaries(st.sampled_from(["", "1"]), st.text(max_size=3)),
    next_id=st.integers(0, 2**62),
)
def test_an_image_comes_back_from_its_own_records(
    topics: dict[int, tuple[int, dict[str, str]]], broker_configs: dict[str, str], next_id: int
) -> None:
    records: list[MetadataRecord] = [ClusterCreated("c" * 22), BROKER]
    for number, (partitions, configs) in topics.items():
        records += topic_records(number, partitions, configs)
    for name, value in broker_configs.items():
        records.append(ConfigChanged(ConfigResource.BROKER, name, "k", value))
    records.append(ProducerIdsAllocated(next_id))
    image = MetadataImage().apply(records)
    stored = encode_records(list(difference(MetadataImage(), image)))
    assert MetadataImage().apply(decode_records(stored)) == image
