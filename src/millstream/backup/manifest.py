"""What one backup consists of: written last, as a whole, and never changed.

A manifest is JSON, `{"format", "checksum", "backup"}`; the checksum is the CRC-32C of the bytes of "backup". It names
every file that the backup needs, also those that earlier ones have copied. A `Selection` is the part of it, or of a
cluster, that somebody asks for.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
from crc32c import crc32c

from millstream.protocol.metadata import TopicMetadata


class BackupError(Exception):
    """The backup, or the restore, was not made."""


class NotABackup(BackupError):
    """The folder is not one that `backup create` made."""


class Damaged(BackupError):
    """A file of the backup is not what the manifest says."""


class NoRoom(BackupError):
    """The disk is full."""


FORMAT = 1


class SegmentCopy(msgspec.Struct, frozen=True, order=True):
    """Batches of one partition that lie in one file; `end_offset` is where the next copy goes on."""

    base_offset: int
    end_offset: int
    size_bytes: int
    checksum: int
    record_count: int
    first_batch: int
    """The base offset of the first batch; it may begin before `base_offset`, which may lie within it."""
    last_epoch: int
    max_timestamp: int
    max_producer_id: int


class PartitionCopy(msgspec.Struct, frozen=True):
    index: int
    log_start_offset: int
    end_offset: int
    leader_epoch: int
    segments: tuple[SegmentCopy, ...]

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.segments)


class TopicCopy(msgspec.Struct, frozen=True):
    name: str
    topic_id: str
    """As 32 hexadecimal digits."""
    is_internal: bool
    replication_factor: int
    configs: dict[str, str]
    partitions: tuple[PartitionCopy, ...]
    partition_count: int
    """Of the topic; fewer are in the backup when only some were asked for."""


class Manifest(msgspec.Struct, frozen=True):
    backup_id: str
    cluster_id: str
    source: str
    version: str
    started_ms: int
    """All that was stored by then is in it, as far as it was not deleted."""
    cut_ms: int
    """Nothing that was stored later is in it. Between the two the nodes said where their logs end."""
    finished_ms: int
    copied_bytes: int
    broker_configs: dict[str, str]
    """The defaults of all brokers that were set while they ran."""
    topics: tuple[TopicCopy, ...]

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for topic in self.topics for each in topic.partitions)

    @property
    def record_count(self) -> int:
        return sum(segment.record_count for _, _, segment in self.files())

    def files(self) -> Iterator[tuple[TopicCopy, PartitionCopy, SegmentCopy]]:
        for topic in self.topics:
            for partition in topic.partitions:
                for segment in partition.segments:
                    yield topic, partition, segment


class _Envelope(msgspec.Struct):
    format: int
    checksum: int
    backup: msgspec.Raw


def segment_path(topic: TopicCopy, partition: PartitionCopy, segment: SegmentCopy) -> str:
    """Below the folder. The name says what is in the file, so that no two contents share one."""
    return file_path(topic.topic_id, partition.index, segment)


def file_path(topic_id: str, index: int, segment: SegmentCopy) -> str:
    name = f"{segment.base_offset:020d}-{segment.end_offset}-{segment.size_bytes}-{segment.checksum:08x}.log"
    return f"segments/{topic_id}/{index}/{name}"


def encode_manifest(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Envelope(FORMAT, crc32c(body), msgspec.Raw(body)))


def decode_manifest(data: bytes, path: str) -> Manifest:
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
        if envelope.format != FORMAT:
            raise Damaged(f"{path} has format {envelope.format}; this version reads format {FORMAT}")
        body = bytes(envelope.backup)
        if crc32c(body) != envelope.checksum:
            raise Damaged(f"{path} fails its checksum: it was changed or is damaged")
        return msgspec.json.decode(body, type=Manifest)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{path} is damaged: {error}") from error


def name_of(topic: TopicMetadata) -> str:
    """Of one that exists."""
    return topic.name or ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions by topic, None for all of them; an empty selection is everything."""

    topics: Mapping[str, frozenset[int] | None] = field(default_factory=dict)

    def has(self, topic: str, index: int) -> bool:
        if not self.topics:
            return True
        wanted = self.topics.get(topic, frozenset())
        return wanted is None or index in wanted

    def check(self, there: Iterable[tuple[str, int]]) -> None:
        """BackupError when a topic or a partition that is asked for is not there."""
        known: dict[str, set[int]] = {}
        for name, index in there:
            known.setdefault(name, set()).add(index)
        for name, indexes in self.topics.items():
            if name not in known:
                raise BackupError(f"there is no topic {name!r}")
            if unknown := (indexes or frozenset()) - known[name]:
                raise BackupError(f"topic {name!r} has no partition {min(unknown)}")

    def of_cluster(self, topics: Mapping[str, TopicMetadata]) -> list[TopicMetadata]:
        """Those that are wanted, by name."""
        self.check((name, each.partition) for name, topic in topics.items() for each in topic.partitions)
        return [topics[name] for name in sorted(self.topics or topics)]
