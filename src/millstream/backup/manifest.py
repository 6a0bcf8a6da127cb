"""The contents of one backup: written last, atomically, and never changed.

A manifest is JSON, `{"format", "checksum", "backup"}`; the checksum is the CRC-32C of the bytes of "backup". It names
every file that the backup needs, including copies made by earlier backups. A `Selection` is a chosen part of a backup
or of a cluster.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from millstream.protocol.checksum import crc32c
from millstream.protocol.metadata import TopicMetadata


class BackupError(Exception):
    """The backup, or the restore, was not made."""


class NotABackup(BackupError):
    """The folder is not one that `backup create` made."""


class Damaged(BackupError):
    """A file of the backup differs from the manifest."""


class NoRoom(BackupError):
    """The disk is full."""


FORMAT = 1


class SegmentCopy(msgspec.Struct, frozen=True, order=True):
    """Batches of one partition in one file; `end_offset` is where the next copy continues."""

    base_offset: int
    end_offset: int
    size_bytes: int
    checksum: int
    record_count: int
    first_batch: int
    """The base offset of the first batch, which may begin before `base_offset` and contain it."""
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
    """All of the topic's; the backup holds fewer if only some were selected."""


class Manifest(msgspec.Struct, frozen=True):
    backup_id: str
    cluster_id: str
    source: str
    version: str
    started_ms: int
    """The backup holds all records stored by then, unless they were deleted."""
    cut_ms: int
    """The backup holds nothing stored later. The nodes reported their logs' ends between the two moments."""
    finished_ms: int
    copied_bytes: int
    broker_configs: dict[str, str]
    """The brokers' cluster-wide defaults that were set at run time."""
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
    """The path below the folder. It identifies the contents, so that different contents never share a file."""
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
    """The name of an existing topic."""
    return topic.name or ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions by topic, None for all of them; an empty selection stands for everything."""

    topics: Mapping[str, frozenset[int] | None] = field(default_factory=dict)

    def has(self, topic: str, index: int) -> bool:
        if not self.topics:
            return True
        wanted = self.topics.get(topic, frozenset())
        return wanted is None or index in wanted

    def check(self, there: Iterable[tuple[str, int]]) -> None:
        """BackupError if a selected topic or partition does not exist."""
        known: dict[str, set[int]] = {}
        for name, index in there:
            known.setdefault(name, set()).add(index)
        for name, indexes in self.topics.items():
            if name not in known:
                raise BackupError(f"there is no topic {name!r}")
            if unknown := (indexes or frozenset()) - known[name]:
                raise BackupError(f"topic {name!r} has no partition {min(unknown)}")

    def of_cluster(self, topics: Mapping[str, TopicMetadata]) -> list[TopicMetadata]:
        """The selected topics, by name."""
        self.check((name, each.partition) for name, topic in topics.items() for each in topic.partitions)
        return [topics[name] for name in sorted(self.topics or topics)]
