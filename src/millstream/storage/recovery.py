"""Open a log after a crash: trust what was synced before the last checkpoint, scan the rest, cut a torn tail.

A recovered log must be made durable (`make_durable`) before it is used: the killed process may have left names and
bytes only in the page cache.
"""

from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import NO_ROOM, Disk
from millstream.runtime.sometimes import sometimes
from millstream.storage.checkpoint import LogCheckpoint, undescribed
from millstream.storage.compaction.swap import recover_swap
from millstream.storage.identity import Identity
from millstream.storage.layout import (
    CUT_FILE,
    DROPPED_SUFFIX,
    GAPS_SUFFIX,
    IDENTITY_FILE,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    START_OFFSET_FILE,
    TEMPORARY_SUFFIX,
    TRUNCATION_FILE,
    encode_start_offset,
    offset_in,
    parent_directories,
    start_after_dropped,
)
from millstream.storage.log import PartitionLog
from millstream.storage.log_state import LogState
from millstream.storage.open_files import OpenFiles
from millstream.storage.rebuilt_state import RebuiltState
from millstream.storage.segment import Segment
from millstream.storage.segment_recovery import ANY_EPOCH, Outcome, RecoveryReport, SegmentRecovery, gapped
from millstream.storage.side_files import SideFiles
from millstream.storage.truncation import TruncationMarker, read_marker


@dataclass(slots=True)
class LogRecovery:
    """Recovers one log.

    `known` is the checkpoint's entry, if valid for this directory. `committed` is the offset up to which all replicas
    are known to have the log; None if it has no other replicas. `was_written`: it may have had records, even if there
    are none now. `found` is the identity in the directory's file; None if the file is missing or damaged.
    """

    files: OpenFiles
    directory: str
    config: TopicConfig
    known: LogCheckpoint | None
    now_ms: int
    identity: Identity
    max_epoch: int = ANY_EPOCH
    committed: int | None = None
    was_written: bool = True
    found: Identity | None = None
    cut_base: int | None = field(default=None, init=False)
    """The segment in which the log was cut since the checkpoint."""
    names: list[str] = field(init=False)
    """The names in the directory."""
    report: RecoveryReport = field(init=False)

    def recover(self) -> tuple[LogState, RecoveryReport]:
        disk, directory = self.files.disk, self.directory
        report = self.report = RecoveryReport(directory)
        recover_swap(disk, directory)
        names = self.names = _names_without_litter(disk, directory)
        # Acknowledged records may never have been flushed. The identity says so until the doubt is over.
        has_replicas = self.committed is not None
        report.is_doubtful = CUT_FILE in names or (has_replicas and self.identity.acknowledges_early)
        if self.known is not None and self.known.rewrites > self.identity.rewrites:
            # Numbers continue from the highest in the directory or the checkpoint.
            self.identity = msgspec.structs.replace(self.identity, rewrites=self.known.rewrites)
        marker = self._read_marker()
        truncations = max(self.known.truncations if self.known else 0, marker.number if marker else 0)
        is_cut = False
        if marker is not None and self.known is not None and marker.number > self.known.truncations:
            self.known, is_cut = _known_after(marker, self.known), True
            self.cut_base = marker.position[0]
        known = self.known
        beside = SideFiles(disk, directory, names, known, report.remade, self.found)
        epochs = beside.flushed_epochs()
        bases = sorted(base for name in names if (base := offset_in(name, LOG_SUFFIX)) is not None)
        log_start = start_after_dropped(names, bases, beside.log_start(bases, epochs))
        bases = self._segments_to_recover(bases, log_start, was_flushed=beside.was_flushed)
        producers = known.producers if known is not None else b""
        scan_from = _scan_from(bases, known)
        rebuilt = RebuiltState.begin(disk, directory, names, scan_from, self.now_ms, epochs, producers)
        if rebuilt.has_lost_epochs and self.committed is not None:
            report.doubt(disk)
        segments = self._recover_segments(bases, log_start, rebuilt)
        end = segments[-1].summary.end_offset if segments else 0
        if self.committed is not None and (end < self.committed or (self.was_written and not segments)):
            # The files are lost, so other replicas must be asked.
            report.doubt(disk)
        start = max(log_start, segments[0].base_offset) if segments else log_start
        position = (segments[-1].base_offset, segments[-1].summary.size_bytes) if segments else (0, 0)
        rebuilt.note_unread(each.summary for each in segments if each.base_offset in report.damaged_segments)
        rebuilt.fit(disk, directory, names, start, max(end, start))
        new_files = rebuilt.new_files(directory, names, position[0])
        if names:
            new_files |= beside.made_again(self.identity, start, rebuilt.epochs)
        if segments and segments[-1].summary.compacted and position[0] not in gapped(names):
            # The segments behind it were set aside: until now it was not the last one.
            new_files[segments[-1].path + GAPS_SUFFIX] = b""
        report.garbage = [name for name in names if offset_in(name, DROPPED_SUFFIX) is not None]
        if report.garbage:
            new_files[f"{directory}/{START_OFFSET_FILE}"] = encode_start_offset(start)
            report.remade = [each for each in report.remade if each != START_OFFSET_FILE]
        unwritten = _write_new_files(disk, new_files)
        # A cut's marker is written first: that the log ends there does not prove that the cut is on disk.
        is_as_known = known is not None and not is_cut and (0, 0) < position == known.flushed_position
        report.is_synced = not names or (is_as_known and not report.damaged_segments and not report.remade)
        if known is not None:
            report.damaged_segments |= {each for each in known.damaged if each in bases}
        if unwritten:
            # Until these files are written, another recovery must rebuild everything. The end may have been cut.
            position = min(position, known.flushed_position if known else (0, 0))
        state = LogState(
            segments,
            log_start_offset=start,
            flushed_offset=max(end, start),
            flushed_position=position,
            cleaned_offset=min(known.cleaned_offset, end) if known else 0,
            checkpointed_base=known.flushed_position[0] if known else 0,
            epochs=rebuilt.epochs,
            producers=rebuilt.producers,
            unwritten={**unwritten, **report.unwritten},
            truncations=truncations,
            is_doubtful=report.is_doubtful,
            incarnation=self.identity.incarnation,
            rewrites=self.identity.rewrites,
            rewritten=dict(self.identity.rewritten),
            acknowledges_early=self.identity.acknowledges_early,
            damaged=set(report.damaged_segments),
            marker=marker,
        )
        return state, report

    def _read_marker(self) -> TruncationMarker | None:
        if TRUNCATION_FILE not in self.names:
            return None
        marker = read_marker(self.files.disk, self.directory)
        if marker is None:
            # The log was cut at an unknown place: nothing counts as synced.
            self.report.remade.append(TRUNCATION_FILE)
            marker = TruncationMarker((self.known.truncations if self.known else 0) + 1, 0, 0, (0, 0))
            self.known = undescribed(self.known, self.config) if self.known is not None else None
        return marker

    def _segments_to_recover(self, bases: list[int], log_start: int, *, was_flushed: bool) -> list[int]:
        """Base offsets of the segments that belong to the log."""
        if self.known is not None:
            bases = self._with_empty_segments(bases, self.known, log_start)
            _require_synced_files(self.directory, bases, self.known)
        if len(bases) > 1 and bases[1] <= log_start:
            # The log's start may be in the page cache only: without it, removed segments would be missed.
            self.files.disk.sync_dir(self.directory)
        while len(bases) > 1 and bases[1] <= log_start:
            # The segment was deleted, but a crash restored it.
            _remove_segment(self.files.disk, f"{self.directory}/{bases.pop(0):020d}")
        if bases and bases[0] > log_start and not was_flushed:
            # The first segment was lost, not deleted.
            self._set_aside(bases)
            return []
        return bases

    def _with_empty_segments(self, bases: list[int], known: LogCheckpoint, log_start: int) -> list[int]:
        """Recreate missing segments that held no batch, because they were new or compaction emptied them.

        A directory that is missing too was never flushed, or is lost: then there may be more to be missed.
        """
        if not self.names:
            return bases
        missing = [
            base
            for base, each in known.summaries().items()
            if not each.size_bytes and base not in bases and base <= known.flushed_position[0]
            if each.end_offset >= log_start and self.identity.rewritten.get(base, each.number) == each.number
        ]
        for base in missing:
            sometimes("the file of an empty segment was made again")
            self.files.disk.open(f"{self.directory}/{base:020d}{LOG_SUFFIX}", create=True).close()
        return sorted((*bases, *missing))

    def _recover_segments(self, bases: list[int], log_start: int, rebuilt: RebuiltState) -> list[Segment]:
        recovery = SegmentRecovery(
            self.files,
            self.directory,
            self.config,
            self.known,
            rebuilt,
            self.report,
            gapped(self.names),
            self.max_epoch,
            self.committed,
            self.identity.rewritten,
            self._may_be_compacted,
            self.config.durable and not self.identity.acknowledges_early,
            self.cut_base,
        )
        segments: list[Segment] = []
        for number, base in enumerate(bases):
            if segments and base < segments[-1].summary.end_offset:
                # The segment was begun for a write that failed; the one before it continued.
                self._set_aside([base])
                continue
            if segments and segments[-1].base_offset in self.report.damaged_segments:
                recovery.extend_damage(segments[-1], base)
            hole = recovery.hole_before(base, segments, log_start)
            is_lost = hole is None and bool(segments) and recovery.is_lost_before(base, segments[-1])
            if is_lost or (hole is not None and recovery.may_be_uncommitted(hole)):
                # The missing records were never synced, or may be uncommitted: the log ends before them.
                self._set_aside(bases[number:])
                break
            if hole is not None:
                if segments and segments[-1].base_offset == hole:
                    segments.pop().close()
                segments.append(recovery.mark_hole(hole, base))
            segment, outcome = recovery.recover(base, *bases[number + 1 : number + 2])
            segments.append(segment)
            if outcome is Outcome.CUT and number + 1 < len(bases):
                self._set_aside(bases[number + 1 :])
                break
            if outcome is Outcome.DAMAGED_END and number + 1 == len(bases):
                segments.append(recovery.begin_segment(segment.summary.end_offset))
        if segments and segments[-1].summary.end_offset < log_start:
            return self._begin_at(log_start, segments, recovery)
        return segments

    @property
    def _may_be_compacted(self) -> bool:
        """An identity with an incarnation counts every file that was ever replaced."""
        return (
            self.config.compacts
            or bool(self.identity.rewrites)
            or not (self.found and self.found.incarnation)
        )

    def _begin_at(self, log_start: int, segments: list[Segment], recovery: SegmentRecovery) -> list[Segment]:
        """Restart a log that was cut below its start: offsets must not be used again."""
        begun = recovery.begin_segment(log_start)
        self.files.disk.sync_dir(self.directory)
        for segment in segments:
            segment.close()
            _remove_segment(self.files.disk, segment.path)
        return [begun]

    def _set_aside(self, bases: list[int]) -> None:
        """Rename the segments after a cut, instead of deleting them; nothing in them was acknowledged as durable."""
        disk = self.files.disk
        for base in bases:
            for suffix in SEGMENT_SUFFIXES:
                path = f"{self.directory}/{base:020d}{suffix}"
                if disk.exists(path):
                    if suffix == LOG_SUFFIX and (size := disk.size(path)):
                        self.report.doubt(disk)
                        self.report.has_cut_batches = True
                        self.report.cut_bytes += size
                    disk.rename(path, path + ".cut")
        disk.sync_dir(self.directory)


def _known_after(marker: TruncationMarker, known: LogCheckpoint) -> LogCheckpoint:
    """The part of an older checkpoint entry that is still valid after the end was cut."""
    return msgspec.structs.replace(
        known,
        log_start_offset=min(known.log_start_offset, marker.log_start_offset),
        flushed_offset=min(known.flushed_offset, marker.end_offset),
        flushed_position=min(known.flushed_position, marker.position),
        cleaned_offset=min(known.cleaned_offset, marker.end_offset),
    )


def _names_without_litter(disk: Disk, directory: str) -> list[str]:
    """The names in the directory, after removing files that the killed process was writing."""
    names = disk.list_dir(directory)
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX):
            # A name that cannot be removed is not our file.
            with suppress(OSError):
                disk.unlink(f"{directory}/{name}")
    return [name for name in names if not name.endswith(TEMPORARY_SUFFIX)]


def _require_synced_files(directory: str, bases: list[int], known: LogCheckpoint) -> None:
    if known.flushed_position > (0, 0) and (not bases or bases[-1] < known.flushed_position[0]):
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{directory} should hold records up to offset {known.flushed_offset} but its files are gone; "
            "restore them, or delete and re-create the topic",
        )


def _scan_from(bases: list[int], known: LogCheckpoint | None) -> int:
    """The base offset of the first segment that is not known to be sealed and synced."""
    return next((base for base in bases if known is None or base >= known.flushed_position[0]), 0)


def _remove_segment(disk: Disk, path: str) -> None:
    for suffix in SEGMENT_SUFFIXES:
        disk.unlink(path + suffix)


def _write_new_files(disk: Disk, files: dict[str, bytes]) -> dict[str, bytes]:
    """Write the files; returns those for which the disk has no room. Reads do not need them."""
    unwritten: dict[str, bytes] = {}
    for path, data in files.items():
        try:
            disk.write_atomically(path, data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            unwritten[path] = data
    return unwritten


def make_durable(log: PartitionLog) -> None:
    """Sync what a killed process may have left in the page cache: segments, identity, and their names."""
    disk = log.disk
    for segment in log.segments:
        if segment.index.dirty:
            segment.file.sync()
    identity = f"{log.directory}/{IDENTITY_FILE}"
    if disk.exists(identity):
        file = disk.open(identity)
        try:
            file.sync()
        finally:
            file.close()
    for directory in parent_directories(log.directory):
        disk.sync_dir(directory)
