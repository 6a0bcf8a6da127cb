"""The checkpoint: the state of all logs in one file, replaced as a whole.

After a clean stop (the marker names this very checkpoint) nothing is scanned. After a crash the checkpoint tells which
segments were sealed and synced, so that only later ones are scanned.

An entry is valid only for the directory and files that it described (storage/identity.py). Entries of earlier versions
do not identify them, and are not trusted after a crash.
"""

import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import msgspec

from millstream.config.topic import TopicConfig
from millstream.protocol.checksum import crc32c
from millstream.runtime.disk import Disk
from millstream.runtime.sometimes import sometimes
from millstream.storage.begun import BegunLog, begun_logs, forget_begun
from millstream.storage.identity import NO_INCARNATION, Identity, read_identity
from millstream.storage.layout import LOG_SUFFIX, partition_directory, with_checksum, without_checksum
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log import PartitionLog
from millstream.storage.log_state import LogState
from millstream.storage.open_files import OpenFiles
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import Segment, SegmentSummary

CHECKPOINT_FILE = "checkpoint"
CLEAN_MARKER_FILE = "clean-shutdown"
_HEAD = struct.Struct(">4sI")
_MAGIC = b"MSC1"
NO_EPOCH = -1


class LogCheckpoint(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    partition: int
    topic_id: bytes
    log_start_offset: int
    flushed_offset: int
    cleaned_offset: int
    flushed_position: tuple[int, int]
    segments: list[tuple[int, int, int, int, int, int, int, int, bool]]
    epochs: list[tuple[int, int]]
    producers: bytes
    truncations: int = 0
    is_doubtful: bool = False
    incarnation: bytes = NO_INCARNATION
    rewrites: int = 0
    numbers: list[tuple[int, int]] = []
    """Base offset and number of each rewritten segment."""
    damaged: list[int] = []
    """Base offsets of segments that are damaged, or that mark missing records."""
    acknowledges_early: bool = False

    def summaries(self) -> dict[int, SegmentSummary]:
        numbers = dict(self.numbers)
        return {each[0]: SegmentSummary(*each, number=numbers.get(each[0], 0)) for each in self.segments}

    def synced_segments(self, rewritten: Mapping[int, int], cut_base: int | None = None) -> dict[int, int]:
        """Base and end offsets of the files that must exist, without those begun or cut since the checkpoint.

        `rewritten` is from the directory's identity. A file that has replaced others since was synced too, and has the
        base of the first of them. One that was begun since the checkpoint has an offset at least, unless the log was
        cut at `cut_base` or below it.
        """
        last, size_bytes = self.flushed_position
        firsts = {number: base for base, number in sorted(rewritten.items(), reverse=True)}
        found: dict[int, int] = {}
        for base, each in self.summaries().items():
            if base < last or (base == last and size_bytes):
                number = rewritten.get(base, each.number)
                place = base if number == each.number else firsts[number]
                found[place] = max(found.get(place, 0), each.end_offset)
        for base in firsts.values():
            if base >= last and base not in found and (cut_base is None or base < cut_base):
                found[base] = base + 1
        return dict(sorted(found.items()))

    @property
    def has_holes(self) -> bool:
        """Whether segments are missing between others that compaction did not remove."""
        summaries = self.summaries().values() if len(self.segments) > 1 else ()
        return any(
            before.end_offset < after.base_offset and not before.compacted
            for before, after in pairwise(summaries)
        )

    def state(self, files: OpenFiles, directory: str) -> LogState:
        """The log's state; correct only after a clean stop."""
        return LogState(
            [Segment(files, directory, summary, stored=True) for summary in self.summaries().values()],
            self.log_start_offset,
            self.flushed_offset,
            self.flushed_position,
            self.cleaned_offset,
            self.flushed_position[0],
            LeaderEpochs(self.epochs),
            (ProducerStates.decode(self.producers) if self.producers else None) or ProducerStates(),
            truncations=self.truncations,
            is_doubtful=self.is_doubtful,
            incarnation=self.incarnation,
            rewrites=self.rewrites,
            acknowledges_early=self.acknowledges_early,
            damaged=set(self.damaged),
        )


def described(entry: LogCheckpoint, identity: Identity | None, config: TopicConfig) -> LogCheckpoint | None:
    """The entry as far as it is valid for this directory; None when not even gapless offsets can be expected."""
    if identity is not None and entry.incarnation == identity.incarnation != NO_INCARNATION:
        return entry
    if identity is not None and NO_INCARNATION not in (entry.incarnation, identity.incarnation):
        sometimes("a stale checkpoint entry was met")
        # The log was created later, and is not compacted: only logs that a checkpoint covers are.
        return later_log(entry.topic, entry.partition, entry.topic_id)
    return undescribed(entry, config)


def undescribed(entry: LogCheckpoint, config: TopicConfig) -> LogCheckpoint | None:
    """The entry for files that it may not describe: nothing of them is known to be synced."""
    # Only logs that a checkpoint covers are compacted.
    may_be_compacted = config.compacts and entry.segments
    if may_be_compacted or entry.cleaned_offset or any(each.compacted for each in entry.summaries().values()):
        return None
    return later_log(entry.topic, entry.partition, entry.topic_id)


def later_log(topic: str, partition: int, topic_id: bytes) -> LogCheckpoint:
    """The entry of a log that was created after the checkpoint: nothing is known to be synced."""
    return LogCheckpoint(topic, partition, topic_id, 0, 0, 0, (0, 0), [], [], b"")


def describe(topic: str, partition: int, log: PartitionLog) -> LogCheckpoint:
    return LogCheckpoint(
        topic,
        partition,
        log.place.identity.topic_id,
        log.log_start_offset,
        log.flushed_offset,
        log.cleaned_offset,
        log.flushed_position,
        [
            (
                s.base_offset,
                s.size_bytes,
                s.end_offset,
                s.record_count,
                s.first_timestamp,
                s.max_timestamp,
                s.offset_of_max_timestamp,
                s.created_ms,
                s.compacted,
            )
            for s in (segment.summary for segment in log.segments)
        ],
        log.epochs.entries,
        log.producers.encode() if len(log.producers) else b"",
        log.truncations,
        log.health.is_doubtful,
        log.place.identity.incarnation,
        log.place.identity.rewrites,
        [(s.base_offset, s.summary.number) for s in log.segments if s.summary.number],
        sorted(log.segments.damaged),
        log.place.identity.acknowledges_early,
    )


def write_checkpoint(disk: Disk, data_dir: str, entries: list[LogCheckpoint]) -> int:
    """Replace the checkpoint; returns its checksum, which the clean-shutdown marker repeats."""
    body = msgspec.msgpack.encode(entries)
    crc = crc32c(body)
    disk.write_atomically(f"{data_dir}/{CHECKPOINT_FILE}", _HEAD.pack(_MAGIC, crc) + body)
    if begun := begun_logs(disk, data_dir):
        written = (
            BegunLog.of(each.topic_id, partition_directory("", each.topic, each.partition), each.incarnation)
            for each in entries
            if each.segments
        )
        forget_begun(disk, data_dir, begun.intersection(written))
    return crc


def read_checkpoint(disk: Disk, data_dir: str) -> tuple[list[LogCheckpoint], int] | None:
    """None when the checkpoint is missing or damaged: then every log is scanned, which is slow but safe."""
    path = f"{data_dir}/{CHECKPOINT_FILE}"
    if not disk.exists(path):
        return None
    data = disk.read(path)
    if len(data) < _HEAD.size:
        return None
    magic, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or crc != crc32c(body):
        return None
    try:
        return msgspec.msgpack.decode(body, type=list[LogCheckpoint]), crc
    except msgspec.MsgspecError:
        return None


def mark_clean(disk: Disk, data_dir: str, crc: int, broker_epoch: int) -> None:
    disk.write_atomically(f"{data_dir}/{CLEAN_MARKER_FILE}", b"%d %d\n" % (crc, broker_epoch))


def clean_broker_epoch(disk: Disk, data_dir: str) -> int:
    """The epoch of the broker that stopped cleanly here; -1 when the last stop was not clean."""
    found = read_checkpoint(disk, data_dir)
    path = f"{data_dir}/{CLEAN_MARKER_FILE}"
    if found is None or not disk.exists(path):
        return NO_EPOCH
    crc, epoch = _decode_marker(disk.read(path))
    return epoch if crc == found[1] and are_files_there(disk, data_dir, found[0]) else NO_EPOCH


def are_files_there(disk: Disk, data_dir: str, entries: list[LogCheckpoint]) -> bool:
    """Whether all segment files have their sizes. Somebody may have changed files while the node was stopped."""
    for entry in entries:
        directory = partition_directory(data_dir, entry.topic, entry.partition)
        if entry.segments and entry.incarnation and not _is_of(entry, read_identity(disk, directory)):
            return False
        for base, size, *_ in entry.segments:
            try:
                if disk.size(f"{directory}/{base:020d}{LOG_SUFFIX}") < size:
                    return False
            except OSError:
                return False
    return True


def _is_of(entry: LogCheckpoint, identity: Identity | None) -> bool:
    numbers = dict(entry.numbers)
    return (
        identity is not None
        and identity.incarnation == entry.incarnation
        and all(numbers.get(base, number) == number for base, number in identity.rewritten.items())
    )


def _decode_marker(data: bytes) -> tuple[int, int]:
    """Checksum of the checkpoint and broker epoch; markers of earlier versions have none."""
    try:
        crc, *rest = map(int, data.split())
    except ValueError:
        return NO_EPOCH, NO_EPOCH
    return crc, rest[0] if rest else NO_EPOCH


def take_clean_marker(disk: Disk, data_dir: str, crc: int) -> bool:
    """Whether the last stop was clean. The marker is gone, durably, before anything new is written."""
    path = f"{data_dir}/{CLEAN_MARKER_FILE}"
    if not disk.exists(path):
        return False
    marker = disk.read(path)
    disk.unlink(path)
    disk.sync_dir(data_dir)
    return _decode_marker(marker)[0] == crc


HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"

Key = tuple[bytes, int]


class Reached(NamedTuple):
    """A high watermark and the incarnation of its log; earlier versions did not store the incarnation."""

    offset: int
    incarnation: bytes = NO_INCARNATION


def write_high_watermarks(disk: Disk, data_dir: str, reached: Mapping[Key, Reached]) -> None:
    lines = ["2", str(len(reached))]
    lines += [
        f"{topic_id.hex()} {index} {offset} {incarnation.hex()}"
        for (topic_id, index), (offset, incarnation) in reached.items()
    ]
    disk.write_atomically(f"{data_dir}/{HIGH_WATERMARKS_FILE}", with_checksum("\n".join(lines) + "\n"))


def read_high_watermarks(disk: Disk, data_dir: str) -> dict[Key, Reached]:
    """Empty when the file is missing or unreadable."""
    path = f"{data_dir}/{HIGH_WATERMARKS_FILE}"
    if not disk.exists(path):
        return {}
    try:
        version, count, *lines = without_checksum(disk.read(path)).splitlines()
        entries = [line.split(" ") for line in lines]
        if version not in ("1", "2") or int(count) != len(entries):
            return {}
        return {
            (bytes.fromhex(topic_id), int(index)): Reached(int(offset), bytes.fromhex("".join(rest)))
            for topic_id, index, offset, *rest in entries
        }
    except ValueError:
        return {}
