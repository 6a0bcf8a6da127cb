"""The requests to a cluster for a backup: configurations, offsets, epochs, checksums and batches."""

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.client.errors import from_code
from millstream.client.wire import requests
from millstream.client.wire.cluster import Cluster
from millstream.cluster.metadata.records import ConfigResource
from millstream.protocol.api import LOG_CHECKSUM
from millstream.protocol.errors import ErrorCode
from millstream.protocol.log_checksum import (
    ChecksumRequest,
    LogChecksum,
    decode_checksum_reply,
    encode_checksum_request,
)

CLEANUP_POLICY, COMPACT = "cleanup.policy", "compact"

_DYNAMIC_TOPIC, _DYNAMIC_DEFAULT_BROKER = 1, 3
_CONSUMER = -1
_MAX_WAIT_MS = 500
_TOPICS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A partition with its topic's name and id."""

    topic: str
    topic_id: bytes
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class Fetched:
    """`records` are whole batches, in a buffer that the next request overwrites."""

    error: int
    high_watermark: int
    log_start_offset: int
    records: memoryview


@dataclass(frozen=True, slots=True)
class TopicSettings:
    own: dict[str, str]
    """Set for the topic itself."""
    is_compacted: bool
    """In force, with inherited values."""


def topic_settings(cluster: Cluster, topics: Iterable[str]) -> dict[str, TopicSettings]:
    """By name; deleted topics are left out."""
    names = list(topics)
    found: dict[str, TopicSettings] = {}
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        wanted = [
            {"resource_type": ConfigResource.TOPIC, "resource_name": name, "configuration_keys": None}
            for name in names[start : start + _TOPICS_AT_ONCE]
        ]
        reply = cluster.any_node().call("describe_configs", resources=wanted)
        for each in reply.results:
            if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if each.error_code:
                raise from_code(
                    f"the settings of {each.resource_name} cannot be read",
                    each.error_code,
                    each.error_message,
                )
            values = {config.name: config.value for config in each.configs if config.value is not None}
            dynamic = {c.name for c in each.configs if c.config_source == _DYNAMIC_TOPIC}
            found[each.resource_name] = TopicSettings(
                {name: value for name, value in values.items() if name in dynamic},
                COMPACT in values.get(CLEANUP_POLICY, ""),
            )
    return found


def broker_configs(cluster: Cluster) -> dict[str, str]:
    """The brokers' cluster-wide defaults that were set at run time."""
    wanted = {"resource_type": ConfigResource.BROKER, "resource_name": "", "configuration_keys": None}
    reply = cluster.any_node().call("describe_configs", resources=[wanted])
    return {
        config.name: config.value
        for each in reply.results
        for config in each.configs
        if config.config_source == _DYNAMIC_DEFAULT_BROKER and config.value is not None
    }


def offsets(cluster: Cluster, places: Iterable[Place], timestamp: int) -> dict[Place, int]:
    """The log's start or its high watermark, for each partition; those of deleted topics are left out."""
    by_name = {(place.topic, place.index): place for place in places}
    # Partitions without a known leader are asked for by name, and one deleted topic would fail them all.
    there = {topic.topic_id for topic in cluster.metadata(None).topics}
    by_name = {name: place for name, place in by_name.items() if place.topic_id in there}
    found: dict[Place, int] = {}
    for each in cluster.list_offsets(dict.fromkeys(by_name, timestamp)):
        place = by_name[each.topic, each.partition]
        if each.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if each.error:
            raise from_code(f"the offsets of {place}", each.error)
        found[place] = each.offset
    return found


def log_bytes(cluster: Cluster) -> dict[tuple[str, int], int]:
    """The sizes of all logs at their leaders, as far as nodes answer; for a progress bar."""
    sizes: dict[tuple[str, int], int] = {}
    for node_id in sorted(cluster.addresses):
        reply = cluster.node(node_id).call("describe_log_dirs", topics=None)
        for directory in reply.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    place = topic.name, each.partition_index
                    sizes[place] = max(sizes.get(place, 0), each.partition_size)
    return sizes


def epoch_end(cluster: Cluster, place: Place, epoch: int) -> tuple[int, int]:
    """The largest epoch up to `epoch` in the leader's log, and its end offset; -1, -1 for none."""
    reply = cluster.leader(place.topic_id, place.index).call(
        "offset_for_leader_epoch",
        replica_id=_CONSUMER,
        topics=[{"topic": place.topic, "partitions": [{"partition": place.index, "leader_epoch": epoch}]}],
    )
    (answer,) = reply.topics[0].partitions
    if answer.error_code:
        raise from_code(f"the leader epochs of {place}", answer.error_code)
    return answer.leader_epoch, answer.end_offset


def log_checksum(
    cluster: Cluster, node_id: int, place: Place, offset: int, until: int, max_bytes: int
) -> LogChecksum:
    """The checksum of one node's own copy. Other brokers than Millstream's close the connection: ConnectionError."""
    body = encode_checksum_request(ChecksumRequest(place.topic_id, place.index, offset, until, max_bytes))
    reply = cluster.node(node_id).request(LOG_CHECKSUM, 0, body)
    code, message, found = decode_checksum_reply(reply)
    if code:
        raise from_code(f"{place} on node {node_id}", code, message)
    return found


def fetch(cluster: Cluster, place: Place, offset: int, max_bytes: int) -> Fetched:
    """Batches from the one that contains `offset`, as stored in the leader's log, below the high watermark.

    Names the topic by id, so that another topic of the same name is never read.
    """
    body = requests.fetch_request(
        place.topic_id, place.index, offset, max_bytes=max_bytes, max_wait_ms=_MAX_WAIT_MS
    )
    node = cluster.leader(place.topic_id, place.index)
    view = node.request(requests.FETCH, requests.FETCH_BY_ID_VERSION, body, flexible=True)
    reply = requests.read_fetch(view, by_id=True)
    at, size = reply.records
    return Fetched(reply.error, reply.high_watermark, reply.log_start_offset, view[at : at + size])
