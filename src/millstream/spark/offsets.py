"""Resolves the options to partitions and offsets of the cluster."""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.client.wire.cluster import Cluster
from millstream.client.wire.requests import EARLIEST, LATEST
from millstream.protocol.metadata import TopicMetadata
from millstream.protocol.wire import NULL_UUID
from millstream.spark.errors import OptionError, SourceError
from millstream.spark.options import Assigned, Pattern, Subscription, Topics
from millstream.spark.positions import AtOffsets, AtTime, AtTimes, Earliest, Latest, Position, TopicPartition

log = logging.getLogger("millstream.spark")

Offsets = dict[TopicPartition, int]
# A pattern does not match internal topics, as with Kafka's consumers.
_NOT_FOUND = -1


class Found(NamedTuple):
    partitions: set[TopicPartition]
    missing: set[str]
    """Named topics and partitions that do not exist."""
    topic_ids: dict[str, bytes]
    """The ids of topics, if the broker reports them."""


def find_partitions(cluster: Cluster, subscription: Subscription) -> Found:
    match subscription:
        case Topics(names):
            found = cluster.topics(names)
            wanted = set(names)
        case Pattern():
            found = {
                name: topic
                for name, topic in cluster.topics(None).items()
                if subscription.matches(name) and not topic.is_internal
            }
            wanted = set(found)
        case Assigned(places):
            found = cluster.topics({topic for topic, _ in places})
            existing = {(name, each.partition) for name, topic in found.items() for each in topic.partitions}
            missing = {f"{topic}-{partition}" for topic, partition in set(places) - existing}
            return Found(set(places) & existing, missing, _ids(found))
    partitions = {(name, each.partition) for name, topic in found.items() for each in topic.partitions}
    return Found(partitions, wanted - set(found), _ids(found))


def _ids(topics: Mapping[str, TopicMetadata]) -> dict[str, bytes]:
    return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id != NULL_UUID}


def require_partitions(cluster: Cluster, subscription: Subscription) -> set[TopicPartition]:
    """The partitions of a batch query; raises SourceError if a named one does not exist."""
    partitions, missing, _ = find_partitions(cluster, subscription)
    if missing:
        raise SourceError(
            f"{', '.join(sorted(missing))} does not exist on {cluster.settings.addresses}; "
            "create it or correct the option"
        )
    return partitions


def resolve(
    cluster: Cluster, position: Position, partitions: Iterable[TopicPartition], option: str
) -> Offsets:
    """The offset of every partition at `position`; `option` is the option's name for error messages."""
    places = sorted(partitions)
    match position:
        case Earliest():
            return cluster.offsets(dict.fromkeys(places, EARLIEST))
        case Latest():
            return cluster.offsets(dict.fromkeys(places, LATEST))
        case AtOffsets(given):
            _same_partitions(given, places, option)
            return _at_offsets(cluster, given)
        case AtTimes(times, or_latest):
            _same_partitions(times, places, option)
            return _at_times(cluster, times, or_latest, option)
        case AtTime(time, or_latest):
            return _at_times(cluster, dict.fromkeys(places, time), or_latest, option)


def _at_offsets(cluster: Cluster, given: Mapping[TopicPartition, int]) -> Offsets:
    symbolic = {place: offset for place, offset in given.items() if offset < 0}
    return {**given, **cluster.offsets(symbolic)}


def _at_times(cluster: Cluster, times: Mapping[TopicPartition, int], or_latest: bool, option: str) -> Offsets:
    found = cluster.offsets(times)
    beyond = [place for place, offset in found.items() if offset == _NOT_FOUND]
    if beyond and not or_latest:
        topic, partition = min(beyond)
        raise SourceError(
            f"{topic}-{partition} has no record at or after {times[topic, partition]} ({option}); choose an earlier "
            "time, or set startingOffsetsByTimestampStrategy to latest"
        )
    return {**found, **cluster.offsets(dict.fromkeys(beyond, LATEST))}


def _same_partitions(
    given: Mapping[TopicPartition, int], partitions: list[TopicPartition], option: str
) -> None:
    if set(given) == set(partitions):
        return
    missing = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(set(partitions) - set(given)))
    unknown = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(set(given) - set(partitions)))
    raise OptionError(
        f"option {option} must name every partition that is read, with -2 for earliest and -1 for latest; "
        f"missing: {missing or 'none'}; not read: {unknown or 'none'}"
    )


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets in the format of Spark's Kafka source in checkpoints and progress."""
    result: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(partition)] = offset
    return result


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
