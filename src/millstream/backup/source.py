"""What is asked of a cluster for a backup: configurations, offsets, epochs, checksums and batches."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millstream.backup.nodes import Cluster, refused
from millstream.cluster.metadata.records import ConfigResource
from millstream.protocol.api import FETCH, LOG_CHECKSUM
from millstream.protocol.errors import ErrorCode
from millstream.protocol.log_checksum import (
    ChecksumRequest,
    LogChecksum,
    decode_checksum_reply,
    encode_checksum_request,
)
from millstream.protocol.wire import Reader

LATEST, EARLIEST = -1, -2
CLEANUP_POLICY, COMPACT = "cleanup.policy", "compact"

_LIST_OFFSETS_VERSION = 7
_EPOCH_VERSION = 4
_CONFIGS_VERSION = 4
_LOG_DIRS_VERSION = 2
_FETCH_VERSION = 13
_DYNAMIC_TOPIC, _DYNAMIC_DEFAULT_BROKER = 1, 3
_CONSUMER = -1
_MAX_WAIT_MS = 500
_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")
_ONE = b"\x02"
_NO_TAGS = b"\0"
_TOPICS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A partition by all its names."""

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
    """What was set for the topic itself."""
    is_compacted: bool
    """By whatever it inherits."""


def topic_settings(cluster: Cluster, topics: Iterable[str]) -> dict[str, TopicSettings]:
    """By name; a topic that is gone by now is left out."""
    names = list(topics)
    found: dict[str, TopicSettings] = {}
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        wanted = [
            {"resource_type": ConfigResource.TOPIC, "resource_name": name, "configuration_keys": None}
            for name in names[start : start + _TOPICS_AT_ONCE]
        ]
        reply = cluster.any_node().call("describe_configs", _CONFIGS_VERSION, resources=wanted)
        for each in reply.results:
            if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if each.error_code:
                raise refused(
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
    """The defaults of all brokers that were set while they ran."""
    wanted = {"resource_type": ConfigResource.BROKER, "resource_name": "", "configuration_keys": None}
    reply = cluster.any_node().call("describe_configs", _CONFIGS_VERSION, resources=[wanted])
    return {
        config.name: config.value
        for each in reply.results
        for config in each.configs
        if config.config_source == _DYNAMIC_DEFAULT_BROKER and config.value is not None
    }


def offsets(cluster: Cluster, places: Iterable[Place], timestamp: int) -> dict[Place, int]:
    """The log's start or its high watermark, for each; those of a topic that is gone are left out."""
    by_node: dict[int, list[Place]] = {}
    for place in places:
        by_node.setdefault(cluster.leader_of(place.topic_id, place.index), []).append(place)
    found: dict[Place, int] = {}
    for node_id, here in by_node.items():
        wanted: dict[str, list[Mapping[str, int]]] = {}
        for place in here:
            wanted.setdefault(place.topic, []).append(
                {"partition_index": place.index, "timestamp": timestamp, "current_leader_epoch": -1}
            )
        reply = cluster.node(node_id).call(
            "list_offsets",
            _LIST_OFFSETS_VERSION,
            replica_id=_CONSUMER,
            topics=[{"name": name, "partitions": partitions} for name, partitions in wanted.items()],
        )
        answers = {
            (topic.name, each.partition_index): each for topic in reply.topics for each in topic.partitions
        }
        for place in here:
            each = answers[place.topic, place.index]
            if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if each.error_code:
                raise refused(f"the offsets of {place}", each.error_code)
            found[place] = each.offset
    return found


def log_bytes(cluster: Cluster) -> dict[tuple[str, int], int]:
    """The sizes of all logs where they are led, as far as the nodes tell; for a bar that shows how far one is."""
    sizes: dict[tuple[str, int], int] = {}
    for node_id in list(cluster.addresses):
        reply = cluster.node(node_id).call("describe_log_dirs", _LOG_DIRS_VERSION, topics=None)
        for directory in reply.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    place = topic.name, each.partition_index
                    sizes[place] = max(sizes.get(place, 0), each.partition_size)
    return sizes


def epoch_end(cluster: Cluster, place: Place, epoch: int) -> tuple[int, int]:
    """The largest epoch up to `epoch` that the leader's log knows, and where it ended; -1, -1 for none."""
    reply = cluster.leader(place.topic_id, place.index).call(
        "offset_for_leader_epoch",
        _EPOCH_VERSION,
        replica_id=_CONSUMER,
        topics=[
            {"topic": place.topic, "partitions": [{"partition": place.index, "leader_epoch": epoch}]},
        ],
    )
    (answer,) = reply.topics[0].partitions
    if answer.error_code:
        raise refused(f"the leader epochs of {place}", answer.error_code)
    return answer.leader_epoch, answer.end_offset


def log_checksum(
    cluster: Cluster, node_id: int, place: Place, offset: int, until: int, max_bytes: int
) -> LogChecksum:
    """Of what one node has on disk. A broker that is not Millstream's closes the connection: ConnectionError."""
    body = encode_checksum_request(ChecksumRequest(place.topic_id, place.index, offset, until, max_bytes))
    reply = cluster.node(node_id).request(LOG_CHECKSUM, 0, body, flexible=False)
    code, message, found = decode_checksum_reply(reply)
    if code:
        raise refused(f"{place} on node {node_id}", code, message)
    return found


def fetch(cluster: Cluster, place: Place, offset: int, max_bytes: int) -> Fetched:
    """Batches from the one that holds `offset` on, as they stand in the leader's log, below the high watermark.

    By the topic's id, so that another topic under the same name is never taken for it.
    """
    body = b"".join(
        (
            _FETCH_HEAD.pack(_CONSUMER, _MAX_WAIT_MS, 1, max_bytes, 0, 0, -1),
            _ONE,
            place.topic_id,
            _ONE,
            _FETCH_PARTITION.pack(place.index, -1, offset, -1, -1, max_bytes),
            _NO_TAGS,
            _NO_TAGS,
            b"\x01",  # no forgotten topics
            b"\x01",  # no rack
            _NO_TAGS,
        )
    )
    node = cluster.leader(place.topic_id, place.index)
    reader = Reader(node.request(FETCH, _FETCH_VERSION, body, flexible=True), flexible=True)
    reader.i32()
    error = reader.i16()
    reader.i32()
    if error or reader.array_length() < 1:
        raise refused(f"a fetch of {place}", error or ErrorCode.UNKNOWN_SERVER_ERROR)
    reader.uuid()
    reader.array_length()
    reader.i32()
    error = reader.i16()
    high_watermark, _, log_start_offset = reader.i64(), reader.i64(), reader.i64()
    for _ in range(max(reader.array_length(), 0)):
        reader.i64()
        reader.i64()
        reader.skip_tags()
    reader.i32()
    return Fetched(error, high_watermark, log_start_offset, reader.nullable_bytes() or memoryview(b""))
