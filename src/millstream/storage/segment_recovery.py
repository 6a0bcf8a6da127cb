"""Open one segment after a crash.

Two kinds of damage are told apart. Bytes that were never known to be synced may be torn: the log ends before them,
and if anything readable follows, the cut bytes are kept in a `.cut` file. Bytes that were synced must be whole: a
batch that fails its checksum there is left in place, reported with file and position, and refused when it is read,
unless other nodes keep the log and need not have what follows: then it is cut too. A log that was cut is in doubt.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from millstream.config.topic import TopicConfig
from millstream.protocol.record_batch import HEADER_SIZE, BatchHeader, CorruptBatch, encode_epoch
from millstream.runtime.disk import NO_ROOM, Disk, File
from millstream.runtime.sometimes import sometimes
from millstream.storage.checkpoint import LogCheckpoint
from millstream.storage.epoch_check import EpochCheck
from millstream.storage.layout import CUT_FILE, CUT_NOTE, GAPS_SUFFIX, LOG_SUFFIX, decode_gap, offset_in
from millstream.storage.leader_epochs import UNDEFINED_OFFSET, LeaderEpochs
from millstream.storage.open_files import OpenFiles
from millstream.storage.rebuilt_state import RebuiltState
from millstream.storage.scan import find_batch, scan_batches
from millstream.storage.segment import MAX_RELATIVE_OFFSET, Segment, SegmentSummary

# Used where the latest leader epoch is unknown.
ANY_EPOCH = 2**31 - 1

_FOR_EVER = 2**63


class Outcome(Enum):
    WHOLE = auto()
    CUT = auto()
    """Unreadable bytes, which need not have been synced, were cut."""
    DAMAGED_END = auto()
    """The last synced bytes cannot be read."""


class RecoveryReport(msgspec.Struct):
    directory: str
    scanned_bytes: int = 0
    cut_bytes: int = 0
    has_cut_batches: bool = False
    """Whole batches followed the cut: not explained by a kill, only by damage or a loss of power."""
    is_doubtful: bool = False
    """Confirmed records may be lost: files are missing, or the end was cut, now or in an earlier recovery after which
    the log has not caught up with a leader.
    """
    unwritten: dict[str, bytes] = msgspec.field(default_factory=dict)
    damages: list[str] = msgspec.field(default_factory=list)
    damaged_segments: set[int] = msgspec.field(default_factory=set)
    """Base offsets of segments whose synced bytes are damaged."""
    is_synced: bool = True
    """The whole log had been synced before the checkpoint."""
    garbage: list[str] = msgspec.field(default_factory=list)
    """Files that newly written ones make obsolete."""
    remade: list[str] = msgspec.field(default_factory=list)
    """Files beside the records that were missing or damaged and were rebuilt."""

    def doubt(self, disk: Disk) -> None:
        """Called before a cut that may lose acknowledged records: write the doubt down, so that it survives a crash.

        A missing directory shows the doubt itself; the note is written when the directory is created.
        """
        if self.is_doubtful:
            return
        self.is_doubtful = True
        if not disk.exists(self.directory):
            return
        path = f"{self.directory}/{CUT_FILE}"
        try:
            disk.write_atomically(path, CUT_NOTE)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self.unwritten[path] = CUT_NOTE
            # An empty file is enough, and may find room.
            with suppress(OSError):
                disk.open(path, create=True).close()
                disk.sync_dir(self.directory)


class _Synced(msgspec.Struct, frozen=True):
    """The part of a segment that was synced according to the checkpoint."""

    size_bytes: int
    end_offset: int


def gapped(names: list[str]) -> frozenset[int]:
    """Segments that may have gaps, because they were copied from a leader that had compacted them."""
    return frozenset(base for name in names if (base := offset_in(name, GAPS_SUFFIX)) is not None)


@dataclass(slots=True)
class SegmentRecovery:
    files: OpenFiles
    directory: str
    config: TopicConfig
    known: LogCheckpoint | None
    rebuilt: RebuiltState
    report: RecoveryReport
    gapped: frozenset[int] = frozenset()
    max_epoch: int = ANY_EPOCH
    committed: int | None = None
    numbers: Mapping[int, int] = field(default_factory=dict)
    """Numbers of segments that were rewritten, perhaps since the checkpoint."""
    may_be_compacted: bool = True
    """Whether compaction may have removed records; asked where no checkpoint tells."""
    was_durable: bool = True
    """Whether every acknowledgement waited for a flush."""
    cut_base: int | None = None
    """The last segment that was left when the log was cut, if that was after the checkpoint."""
    _summaries: dict[int, SegmentSummary] = field(init=False)
    _synced_ends: dict[int, int] = field(init=False)
    """End offsets of files that must exist, by base offset."""
    _epochs: EpochCheck = field(init=False)
    _compacted: set[int] = field(default_factory=set)
    """Base offsets of scanned segments behind which a gap may be one of compaction."""

    def __post_init__(self) -> None:
        flushed = LeaderEpochs(self.rebuilt.epochs.entries)
        # Without the flushed epochs, batches cannot be checked against them.
        has_replicas = self.committed is not None and not self.rebuilt.has_lost_epochs
        self._epochs = EpochCheck(flushed, self.max_epoch, has_replicas, self.was_durable)
        entries = self.known.summaries() if self.known is not None else {}
        self._summaries = {base: each for base, each in entries.items() if self._is_described(each)}
        known = self.known
        self._synced_ends = {} if known is None else known.synced_segments(self.numbers, self.cut_base)

    def _is_described(self, summary: SegmentSummary) -> bool:
        """Whether the checkpoint describes this file, and not one that it has replaced since."""
        is_same = self.numbers.get(summary.base_offset, summary.number) == summary.number
        if not is_same:
            sometimes("a segment was rewritten after the checkpoint that describes it")
        return is_same

    def recover(self, base: int, limit: int = _FOR_EVER) -> tuple[Segment, Outcome]:
        """The segment at `base`, whose offsets are below `limit`."""
        size = self.files.disk.size(f"{self.directory}/{base:020d}{LOG_SUFFIX}")
        summary = self._summaries.get(base)
        is_sealed = self.known is not None and base < self.known.flushed_position[0]
        if is_sealed and summary is not None and summary.size_bytes == size and not self._may_be_cut(summary):
            return self._trust(summary), Outcome.WHOLE
        self.rebuilt.begin_segment()
        created_ms = summary.created_ms if summary is not None else self.rebuilt.now_ms
        segment = Segment(
            self.files,
            self.directory,
            SegmentSummary(
                base,
                end_offset=base,
                created_ms=created_ms,
                compacted=self._may_have_gaps(base, summary),
                number=self.numbers.get(base, summary.number if summary is not None else 0),
            ),
            stored=False,
        )
        # After a failed fsync the page cache may differ from the disk.
        segment.file.drop_cache()
        segment.index.dirty = True
        if is_sealed and summary is not None:
            self.report.damages.append(
                f"{segment.log_path} holds {size} bytes, {summary.size_bytes} were written"
            )
        synced = self._synced(base, size, summary, is_sealed=is_sealed)
        end = self._scan(segment, size, synced, limit)
        if end < synced.size_bytes and not self.may_be_uncommitted(segment.summary.end_offset):
            self._keep_damaged_end(segment, size, synced)
            return segment, Outcome.DAMAGED_END
        if end < max(size, synced.size_bytes):
            self._cut(segment, end, size)
            return segment, Outcome.CUT
        self._note_end(segment, summary, limit)
        return segment, Outcome.WHOLE

    def begin_segment(self, offset: int) -> Segment:
        """A new last segment, because a scan might not find batches appended behind damage."""
        self.rebuilt.begin_segment()
        summary = SegmentSummary(offset, end_offset=offset, created_ms=self.rebuilt.now_ms)
        segment = Segment(self.files, self.directory, summary, stored=False)
        segment.create()
        segment.index.dirty = True
        return segment

    def hole_before(self, base: int, segments: list[Segment], log_start: int) -> int | None:
        """The first offset of missing synced records before the segment at `base`; None if none are missing."""
        end = segments[-1].summary.end_offset if segments else log_start
        for synced_base, synced_end in self._synced_ends.items():
            # Segments up to the last one are present or already handled.
            is_before = (segments[-1].base_offset if segments else -1) < synced_base < base
            if is_before and synced_end > max(end, log_start):
                return max(end, synced_base) if segments else synced_base
        if not segments:
            # Deletion leaves a new log start or a `.dropped` file. Segments after the checkpoint are not compacted.
            is_dense = not self.config.compacts if self.known is None else self.is_scanned(base)
            return log_start if is_dense and base > log_start else None
        is_dense = not segments[-1].summary.compacted and not self.is_scanned(base)
        return end if is_dense and end < base else None

    def is_lost_before(self, base: int, last: Segment) -> bool:
        """Whether records that were never synced are missing between `last` and the segment at `base`."""
        is_gap = base > last.summary.end_offset and last.base_offset not in self._compacted
        return is_gap and self.is_scanned(base)

    def mark_hole(self, start: int, end: int) -> Segment:
        """A segment without a sound batch in place of missing ones: reads fail until it is repaired."""
        sometimes("a missing segment was found")
        summary = SegmentSummary(start, end_offset=end, created_ms=self.rebuilt.now_ms)
        segment = Segment(self.files, self.directory, summary, stored=False)
        segment.create()
        segment.file.truncate(HEADER_SIZE)
        summary.size_bytes = HEADER_SIZE
        segment.index.dirty = segment.time_index.dirty = True
        self.report.damages.append(f"{segment.log_path}: offsets {start} to {end - 1} are missing")
        self.report.damaged_segments.add(start)
        return segment

    def extend_damage(self, damaged: Segment, next_base: int) -> None:
        """Extend damage up to the next segment, if that part was synced.

        The same applies to a hole that an earlier recovery marked before it was interrupted.
        """
        if not self.is_scanned(next_base):
            damaged.summary.end_offset = max(damaged.summary.end_offset, next_base)

    def may_be_uncommitted(self, offset: int) -> bool:
        """Whether other replicas may lack the records from `offset` on, so that damage there cannot be repaired.

        Such records are cut even if they were synced: damage on a leader would keep all others from following.
        """
        return self.committed is not None and offset >= self.committed

    def _may_be_cut(self, summary: SegmentSummary) -> bool:
        """Whether the segment has damage that other replicas may be unable to repair."""
        is_damaged = self.known is not None and summary.base_offset in self.known.damaged
        return is_damaged and self.may_be_uncommitted(summary.end_offset - 1)

    def is_scanned(self, base: int) -> bool:
        """Whether the segment is newer than the checkpoint's last one; such segments are not compacted."""
        return self.known is not None and base > self.known.flushed_position[0]

    def _may_have_gaps(self, base: int, summary: SegmentSummary | None) -> bool:
        if base in self.gapped:
            return True
        if self.known is None:
            return self.may_be_compacted
        if summary is None:
            return base < self.known.flushed_position[0] or base in self.numbers
        # Also behind a cut that was recorded but perhaps not carried out.
        return summary.compacted

    def _note_end(self, segment: Segment, summary: SegmentSummary | None, limit: int) -> None:
        """The segment may lack its last records, by compaction: note where it ends, if that is known."""
        base, known = segment.base_offset, self.known
        is_as_described = summary is not None and summary.compacted and _is_same(segment.summary, summary)
        if not is_as_described and (summary is not None or base not in self.numbers):
            return
        end = _FOR_EVER
        # What was not sealed at the checkpoint has not been compacted since.
        if known is not None and self.cut_base is None and base >= known.flushed_position[0]:
            if summary is not None:
                end = summary.end_offset
            else:
                # It was repaired, and a repair notes its gaps.
                end = self._last_gap(segment) if base in self.gapped else base
        if end == _FOR_EVER:
            self._compacted.add(base)
        elif limit != _FOR_EVER:
            segment.summary.end_offset = max(segment.summary.end_offset, min(end, limit))

    def _trust(self, summary: SegmentSummary) -> Segment:
        segment = Segment(self.files, self.directory, summary, stored=True)
        if self.rebuilt.producers_from < summary.end_offset:
            for _, header, _ in segment.scan():
                self.rebuilt.see_producer(header)
        return segment

    def _synced(self, base: int, size: int, summary: SegmentSummary | None, *, is_sealed: bool) -> _Synced:
        if is_sealed:
            if summary is None:
                # Rewritten since the checkpoint, and synced before it was put in place.
                return _Synced(size, base)
            return _Synced(max(size, summary.size_bytes), summary.end_offset)
        if self.known is not None and base == self.known.flushed_position[0]:
            return _Synced(self.known.flushed_position[1], self.known.flushed_offset)
        return _Synced(0, base)

    def _scan(self, segment: Segment, size: int, synced: _Synced, limit: int) -> int:
        """Count and index every batch; returns where the log ends. All offsets are below `limit`."""
        position = next_position = 0
        last_synced = synced.end_offset if synced.end_offset > segment.base_offset else _FOR_EVER
        summary = segment.summary
        while position < size:
            try:
                for position, found, _ in scan_batches(segment.file, position, size):  # noqa: B020
                    header = found
                    # No checksum covers offsets, but they must follow each other.
                    must_follow = position == next_position and not summary.compacted
                    is_beyond = position < synced.size_bytes and header.last_offset >= last_synced
                    is_gap = header.base_offset > summary.end_offset
                    if (
                        header.base_offset < summary.end_offset
                        or (
                            is_gap
                            and (must_follow or self._is_far_off(segment, position, size, header, limit))
                        )
                        or is_beyond
                    ):
                        raise CorruptBatch(
                            f"offset {header.base_offset} where {summary.end_offset} was expected", position
                        )
                    header = self._with_true_epoch(segment, position, size, header)
                    summary.size_bytes = position
                    next_position = position + header.size_bytes
                    segment.note_batch(
                        header,
                        header.base_offset,
                        header.max_timestamp,
                        position,
                        self.config.index_interval_bytes,
                    )
                    self.rebuilt.see(header)
                position = size
            except CorruptBatch as error:
                position = error.position
                following = find_batch(segment.file, position + 1, size)
                may_cut = position >= synced.size_bytes or self.may_be_uncommitted(segment.summary.end_offset)
                if not may_cut:
                    self.report.damages.append(f"{segment.log_path} at byte {position}: {error.message}")
                    self.report.damaged_segments.add(segment.base_offset)
                if may_cut or following is None:
                    break
                position = following
        self.report.scanned_bytes += position
        summary.size_bytes = position
        return position

    def _is_far_off(
        self, segment: Segment, position: int, size: int, header: BatchHeader, limit: int
    ) -> bool:
        """Whether the offset of a batch behind a gap is rotten.

        Those of what follows it are lower. At the end of the log, it is behind the last gap that was noted.
        """
        behind = position + header.size_bytes
        if header.last_offset >= min(limit, segment.base_offset + MAX_RELATIVE_OFFSET):
            return True
        following = _batch_at(segment.file, behind, size) if behind < size else None
        if following is not None:
            return segment.summary.end_offset <= following.base_offset <= header.last_offset
        return limit == _FOR_EVER and header.base_offset > self._last_gap(segment)

    def _last_gap(self, segment: Segment) -> int:
        """Where the last gap of the log's last segment may end."""
        if segment.base_offset in self.gapped:
            noted = decode_gap(self.files.disk.read(segment.path + GAPS_SUFFIX))
            return _FOR_EVER if noted is None else noted
        # The last segment was never compacted. A log without other replicas keeps as much as possible.
        return UNDEFINED_OFFSET if self.known is None and self.committed is not None else _FOR_EVER

    def _with_true_epoch(
        self, segment: Segment, position: int, size: int, header: BatchHeader
    ) -> BatchHeader:
        """Correct a damaged epoch if the true one is known; otherwise CorruptBatch."""
        behind = position + header.size_bytes
        epoch = self._epochs.true_epoch(header, lambda: self._epoch_after(segment, header, behind, size))
        if epoch == header.leader_epoch:
            return header
        message = f"the record batch claims leader epoch {header.leader_epoch}"
        if epoch is None:
            raise CorruptBatch(f"{message}, which nothing confirms", position)
        self.report.damages.append(f"{segment.log_path} at byte {position}: {message}, set right to {epoch}")
        segment.file.pwrite(*encode_epoch(epoch, position))
        return header._replace(leader_epoch=epoch)

    def _epoch_after(self, segment: Segment, header: BatchHeader, position: int, end: int) -> int | None:
        if position < end:
            return _epoch_of(_batch_at(segment.file, position, end))
        following = f"{self.directory}/{header.last_offset + 1:020d}{LOG_SUFFIX}"
        if not self.files.disk.exists(following):
            return None
        file = self.files.disk.open(following, read_only=True)
        try:
            return _epoch_of(_batch_at(file, 0, file.size()))
        finally:
            file.close()

    def _keep_damaged_end(self, segment: Segment, size: int, synced: _Synced) -> None:
        """Keep the damaged bytes, or zeros in their place, so that reads of these offsets fail."""
        if size < synced.size_bytes:
            self.report.damages.append(
                f"{segment.log_path} ends at byte {size}: it was synced up to {synced.size_bytes}"
            )
            self.report.damaged_segments.add(segment.base_offset)
        elif size > synced.size_bytes:
            self.report.doubt(self.files.disk)
            self.report.cut_bytes += size - synced.size_bytes
        segment.file.truncate(synced.size_bytes)
        segment.summary.size_bytes = synced.size_bytes
        segment.summary.end_offset = max(segment.summary.end_offset, synced.end_offset)

    def _cut(self, segment: Segment, end: int, size: int) -> None:
        self.report.doubt(self.files.disk)
        if find_batch(segment.file, end + 1, size) is not None:
            self.report.has_cut_batches = True
            cut_bytes = segment.file.pread(size - end, end)
            self.files.disk.write_atomically(f"{segment.log_path}.{end}.cut", cut_bytes)
        segment.file.truncate(end)
        # Synced bytes that are missing from the file are lost too.
        self.report.cut_bytes += max(size - end, 1)


def _is_same(found: SegmentSummary, described: SegmentSummary) -> bool:
    """Whether the segment is exactly as the checkpoint describes it."""
    return (found.size_bytes, found.record_count, found.max_timestamp, found.offset_of_max_timestamp) == (
        described.size_bytes,
        described.record_count,
        described.max_timestamp,
        described.offset_of_max_timestamp,
    )


def _batch_at(file: File, position: int, end: int) -> BatchHeader | None:
    """None if there is no sound batch at `position`."""
    try:
        return next((header for _, header, _ in scan_batches(file, position, end)), None)
    except CorruptBatch:
        return None


def _epoch_of(header: BatchHeader | None) -> int | None:
    return None if header is None else header.leader_epoch
