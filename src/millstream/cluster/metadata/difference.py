"""The difference of two images as records: a whole image for a snapshot, or the changes that a snapshot skipped."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from millstream.cluster.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.records import (
    BrokerEpochsUsed,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterCreated,
    ConfigChanged,
    ConfigResource,
    DirectoriesRetired,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)


def difference(old: MetadataImage, new: MetadataImage) -> Iterator[MetadataRecord]:
    """Records that give `new` when applied to `old`, which is empty or an earlier image of the same cluster."""
    if new.cluster_id != old.cluster_id:
        yield ClusterCreated(new.cluster_id)
    for broker in old.brokers.values():
        if broker.broker_id not in new.brokers:
            yield BrokerUnregistered(broker.broker_id, broker.epoch)
    for broker in new.brokers.values():
        if old.brokers.get(broker.broker_id) != broker:
            yield _registered(broker)
    if new.last_broker_epoch != old.last_broker_epoch:
        yield BrokerEpochsUsed(new.last_broker_epoch)
    if new.retired_directories != old.retired_directories:
        yield DirectoriesRetired(tuple(sorted(new.retired_directories)))
    for name in {**old.broker_configs, **new.broker_configs}:
        yield from _configs(
            ConfigResource.BROKER, name, old.broker_configs.get(name, {}), new.broker_configs.get(name, {})
        )
    for name in {**old.group_configs, **new.group_configs}:
        yield from _configs(
            ConfigResource.GROUP, name, old.group_configs.get(name, {}), new.group_configs.get(name, {})
        )
    for topic in old.topics.values():
        if topic.topic_id not in new.topics_by_id:
            yield TopicDeleted(topic.topic_id)
    for topic in new.topics.values():
        yield from _topic(old.topics_by_id.get(topic.topic_id), topic)
    if new.next_producer_id != old.next_producer_id:
        yield ProducerIdsAllocated(new.next_producer_id)


def _registered(broker: BrokerImage) -> BrokerRegistered:
    return BrokerRegistered(
        broker.broker_id,
        broker.epoch,
        broker.incarnation,
        broker.endpoints,
        broker.rack,
        broker.is_fenced,
        broker.is_shutting_down,
        broker.directory,
        broker.min_insync,
        broker.session_ms,
    )


def _topic(old: TopicImage | None, new: TopicImage) -> Iterator[MetadataRecord]:
    if old is None:
        yield TopicCreated(new.name, new.topic_id)
    yield from _configs(ConfigResource.TOPIC, new.name, old.configs if old is not None else {}, new.configs)
    known = old.partitions if old is not None else ()
    for was, now in zip(known, new.partitions, strict=False):
        if was != now:
            yield partition_changed(new.topic_id, now)
    for partition in new.partitions[len(known) :]:
        yield PartitionCreated(new.topic_id, *_state(partition))


def partition_changed(topic_id: UUID, partition: PartitionImage) -> PartitionChanged:
    return PartitionChanged(topic_id, *_state(partition))


def _state(partition: PartitionImage) -> tuple[Any, ...]:
    """What both records of a partition hold, in the order of their fields."""
    return (
        partition.index,
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.elr,
        partition.adding,
        partition.removing,
        partition.last_known_leader,
        partition.last_known_elr,
    )


def _configs(
    resource: ConfigResource, name: str, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[ConfigChanged]:
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            yield ConfigChanged(resource, name, key, new.get(key))
