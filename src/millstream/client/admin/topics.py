"""Topics and partitions: lists, creates and deletes them, finds offsets, and deletes the oldest records."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from millstream.client.admin.values import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from millstream.client.errors import ConfigurationError, UnknownPartitionError, UnknownTopicError, from_code
from millstream.client.positions import Place, TopicPartition
from millstream.client.settings import OffsetResetPolicy
from millstream.client.wire import requests
from millstream.client.wire.cluster import Cluster
from millstream.protocol.errors import ErrorCode
from millstream.protocol.metadata import TopicMetadata
from millstream.protocol.wire import format_uuid

_DELETE_VERSION = 5

When = OffsetResetPolicy | str | int | datetime
"""`earliest`, `latest`, a moment, or that moment in milliseconds since 1970."""


class TopicAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _patience(self) -> timedelta:
        return timedelta(seconds=self._cluster.settings.api_timeout_s)

    def metadata(self) -> ClusterInfo:
        """The cluster, its brokers and all topics, including internal ones."""
        cluster = self._cluster
        info = cluster.patiently("cannot read the cluster's metadata", lambda: cluster.metadata(None))
        return ClusterInfo(
            info.cluster_id,
            info.controller_id if info.controller_id >= 0 else None,
            tuple(BrokerInfo(*each) for _, each in sorted(info.brokers.items())),
            tuple(sorted(map(_topic, info.topics), key=lambda topic: topic.name)),
        )

    def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics, sorted by name; with `internal` also the cluster's own."""
        return [each for each in self.metadata().topics if internal or not each.is_internal]

    def describe_partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """A topic's partitions, without their offsets; UnknownTopicError when the topic does not exist."""
        return self._found(topic).partitions

    def describe_topic(self, topic: str) -> TopicInfo:
        """A topic with the offsets of each partition; UnknownTopicError when it does not exist."""
        info = self._found(topic)
        led = [TopicPartition(topic, each.partition) for each in info.partitions if each.leader is not None]
        starts, ends = self.known_offsets(led, "earliest"), self.known_offsets(led, "latest")
        with_offsets = tuple(
            msgspec.structs.replace(
                each,
                start_offset=starts.get(TopicPartition(topic, each.partition)),
                end_offset=ends.get(TopicPartition(topic, each.partition)),
            )
            for each in info.partitions
        )
        return msgspec.structs.replace(info, partitions=with_offsets)

    def create_topic(
        self,
        topic: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Create a topic; omitted arguments take the cluster's defaults. TopicExistsError when the name is taken."""
        new = {
            "name": topic,
            "num_partitions": partitions or -1,
            "replication_factor": replication_factor or -1,
            "configs": [{"name": name, "value": str(value)} for name, value in (configs or {}).items()],
        }
        reply = self._cluster.call_once(
            "create_topics", topics=[new], timeout=self._patience, validate_only=validate_only
        )
        _raise_first(f"cannot create topic {topic!r}", reply.topics)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and all of its messages; UnknownTopicError when it does not exist."""
        reply = self._cluster.call_once(
            "delete_topics", _DELETE_VERSION, topic_names=[topic], timeout=self._patience
        )
        self._raise_first_of_topic(topic, f"cannot delete topic {topic!r}", reply.responses)

    def add_partitions(self, topic: str, total: int) -> None:
        """Add partitions until the topic has `total`. From then on a key may map to another partition."""
        wanted = {"name": topic, "count": total, "assignments": None}
        reply = self._cluster.call_once("create_partitions", topics=[wanted], timeout=self._patience)
        self._raise_first_of_topic(topic, f"cannot give topic {topic!r} {total} partitions", reply.results)

    def offsets(self, places: Iterable[Place], when: When = "latest") -> dict[TopicPartition, int]:
        """The offset of each partition's start, end, or first message at or after a time (the end if there is none)."""
        wanted = [TopicPartition(*place) for place in places]
        self._check_places(wanted)
        found = self._cluster.offsets(dict.fromkeys(wanted, _timestamp(when)))
        late = [place for place in wanted if found[place] < 0]
        found |= self._cluster.offsets(dict.fromkeys(late, requests.LATEST)) if late else {}
        return {place: found[place] for place in wanted}

    def known_offsets(self, places: Iterable[Place], when: When = "latest") -> dict[TopicPartition, int]:
        """Like `offsets`, but leaves out partitions whose leader does not answer, or without a message that late."""
        wanted = {TopicPartition(*place): _timestamp(when) for place in places}
        leads = {
            TopicPartition(topic.name or "", each.partition): each.leader >= 0
            for topic in self._cluster.topics({topic for topic, _ in wanted}).values()
            for each in topic.partitions
        }
        led: dict[tuple[str, int], int] = {place: at for place, at in wanted.items() if leads.get(place)}
        found = self._cluster.list_offsets(led, skips_failures=True) if led else []
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found
            if not each.error and each.offset >= 0
        }

    def delete_records(self, before: Mapping[Place, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset (-1: all); returns each partition's new start. Cannot be undone."""
        if not before:
            return {}
        self._check_places(before)
        cluster = self._cluster
        by_leader: dict[int, dict[str, list[dict[str, int]]]] = {}

        def find() -> None:
            by_leader.clear()
            for (topic, index), offset in before.items():
                topics = by_leader.setdefault(cluster.leader_of(topic, index), {})
                topics.setdefault(topic, []).append({"partition_index": index, "offset": offset})

        cluster.patiently("the partitions' leaders are unknown", find)
        begins: dict[TopicPartition, int] = {}
        for node, topics in by_leader.items():
            wanted = [{"name": name, "partitions": each} for name, each in topics.items()]
            reply = cluster.call_node(node, "delete_records", topics=wanted, timeout=self._patience)
            for topic in reply.topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        raise from_code(
                            f"cannot delete records of {place.topic}:{place.partition}", each.error_code
                        )
                    begins[place] = each.low_watermark
        return begins

    def _found(self, topic: str) -> TopicInfo:
        found = self._cluster.topics([topic]).get(topic)
        if found is None:
            raise self._unknown(topic)
        return _topic(found)

    def _check_places(self, places: Iterable[Place]) -> None:
        wanted = [TopicPartition(*place) for place in places]
        known = self._cluster.topics({place.topic for place in wanted})
        for topic, index in wanted:
            if topic not in known:
                raise self._unknown(topic)
            count = len(known[topic].partitions)
            if not 0 <= index < count:
                raise UnknownPartitionError(
                    f"topic {topic!r} has no partition {index}; it has partitions 0 to {count - 1}"
                )

    def _unknown(self, topic: str) -> UnknownTopicError:
        name = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        return UnknownTopicError(f"there is no topic {topic!r} at {self._cluster.settings.addresses}", name)

    def _raise_first_of_topic(self, topic: str, action: str, results: Sequence[Any]) -> None:
        if any(each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in results):
            raise self._unknown(topic)
        _raise_first(action, results)


def _topic(found: TopicMetadata) -> TopicInfo:
    return TopicInfo(
        found.name or "",
        format_uuid(found.topic_id),
        found.is_internal,
        tuple(
            PartitionInfo(
                each.partition,
                each.leader if each.leader >= 0 else None,
                each.leader_epoch,
                tuple(each.replicas),
                tuple(each.in_sync_replicas),
            )
            for each in found.partitions
        ),
    )


def _timestamp(when: When) -> int:
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ConfigurationError("a time needs a time zone, such as datetime.now(UTC)")
        return max(0, round(when.timestamp() * 1000))
    if isinstance(when, int):
        return max(0, when)
    if when == OffsetResetPolicy.EARLIEST:
        return requests.EARLIEST
    if when == OffsetResetPolicy.LATEST:
        return requests.LATEST
    raise ConfigurationError(f"{when!r} is no position; use 'earliest', 'latest' or a time")


def _raise_first(action: str, results: Sequence[Any]) -> None:
    for each in results:
        if each.error_code:
            raise from_code(action, each.error_code, getattr(each, "error_message", None))
