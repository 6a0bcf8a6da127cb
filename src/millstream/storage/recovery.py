"""Open a log after a crash: trust what was synced before the last checkpoint, scan the rest, cut a torn tail.

What was recovered must be made durable (`make_durable`) before anybody builds on it: the process may have been killed
with names and bytes still in the page cache.
"""

from itertools import pairwise

import msgspec

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import NO_ROOM, Disk
from millstream.storage.checkpoint import LogCheckpoint
from millstream.storage.compaction.swap import recover_swap
from millstream.storage.layout import (
    CUT_FILE,
    EPOCHS_FILE,
    IDENTITY_FILE,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    START_OFFSET_FILE,
    TEMPORARY_SUFFIX,
    TRUNCATION_FILE,
    decode_start_offset,
    parent_directories,
)
from millstream.storage.log import LogState, PartitionLog
from millstream.storage.open_files import OpenFiles
from millstream.storage.rebuilt_state import RebuiltState
from millstream.storage.segment import Segment
from millstream.storage.segment_recovery import (
    ANY_EPOCH,
    Outcome,
    RecoveryReport,
    SegmentRecovery,
    gapped,
)
from millstream.storage.truncation import TruncationMarker, read_marker


def recover_log(
    files: OpenFiles,
    directory: str,
    config: TopicConfig,
    known: LogCheckpoint | None,
    now_ms: int,
    max_epoch: int = ANY_EPOCH,
    *,
    committed: int | None = None,
) -> tuple[LogState, RecoveryReport]:
    """The log as it is on disk. `known` is its entry in the checkpoint; None when there is no checkpoint at all.

    Where other nodes keep the log too, all replicas are known to have it up to `committed`.
    """
    disk = files.disk
    report = RecoveryReport(directory)
    recover_swap(disk, directory)
    names = _names_without_litter(disk, directory)
    report.is_doubtful = CUT_FILE in names
    marker = read_marker(disk, directory) if TRUNCATION_FILE in names else None
    truncations = max(known.truncations if known else 0, marker.number if marker else 0)
    if marker is not None and known is not None and marker.number > known.truncations:
        known = _known_after(marker, known)
    log_start = _read_start_offset(disk, directory, names, known)
    bases = _segments_to_recover(disk, directory, names, known, log_start, report)
    rebuilt = RebuiltState.begin(disk, directory, names, _scan_from(bases, known), now_ms)
    recovery = SegmentRecovery(
        files, directory, config, known, rebuilt, report, gapped(names), max_epoch, committed
    )
    segments = _recover_segments(disk, directory, bases, recovery)
    if segments and segments[-1].summary.end_offset < log_start:
        segments = _begin_at(log_start, segments, recovery)
    _report_holes(segments, report)
    end = segments[-1].summary.end_offset if segments else 0
    start = max(log_start, segments[0].base_offset) if segments else log_start
    position = (segments[-1].base_offset, segments[-1].summary.size_bytes) if segments else (0, 0)
    rebuilt.fit(disk, directory, names, start, max(end, start))
    unwritten = _write_new_files(disk, rebuilt.new_files(directory, names, position[0]))
    report.is_synced = not names or (known is not None and (0, 0) < position == known.flushed_position)
    if unwritten:
        # Until they are written, another recovery has to learn it all again.
        position = known.flushed_position if known else (0, 0)
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
    )
    return state, report


def _known_after(marker: TruncationMarker, known: LogCheckpoint) -> LogCheckpoint:
    """What a checkpoint from before the end was cut still says for sure."""
    return msgspec.structs.replace(
        known,
        log_start_offset=min(known.log_start_offset, marker.log_start_offset),
        flushed_offset=min(known.flushed_offset, marker.end_offset),
        flushed_position=min(known.flushed_position, marker.position),
        cleaned_offset=min(known.cleaned_offset, marker.end_offset),
    )


def _segments_to_recover(
    disk: Disk,
    directory: str,
    names: list[str],
    known: LogCheckpoint | None,
    log_start: int,
    report: RecoveryReport,
) -> list[int]:
    """Base offsets of the segments that belong to the log."""
    bases = sorted(
        int(name.removesuffix(LOG_SUFFIX))
        for name in names
        if name.endswith(LOG_SUFFIX) and name[:20].isdigit()
    )
    _require_synced_files(directory, bases, known)
    while len(bases) > 1 and bases[1] <= log_start:
        # It was deleted, but the disk forgot.
        _remove_segment(disk, f"{directory}/{bases.pop(0):020d}")
    if bases and bases[0] > log_start and EPOCHS_FILE not in names:
        # Every flush leaves that file, so there was none: the first segment is not deleted but lost.
        _set_aside(disk, directory, bases, report)
        return []
    return bases


def _names_without_litter(disk: Disk, directory: str) -> list[str]:
    """What is in the directory, after files that were being written when the process ended are gone."""
    names = disk.list_dir(directory)
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX):
            disk.unlink(f"{directory}/{name}")
    return [name for name in names if not name.endswith(TEMPORARY_SUFFIX)]


def _require_synced_files(directory: str, bases: list[int], known: LogCheckpoint | None) -> None:
    if known is None or known.flushed_position == (0, 0):
        return
    if not bases or bases[-1] < known.flushed_position[0]:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{directory} should hold records up to offset {known.flushed_offset} but its files are gone; "
            "restore them, or delete and re-create the topic",
        )


def _scan_from(bases: list[int], known: LogCheckpoint | None) -> int:
    """The base offset of the first segment that is not known to be sealed and synced."""
    return next((base for base in bases if known is None or base >= known.flushed_position[0]), 0)


def _recover_segments(
    disk: Disk, directory: str, bases: list[int], recovery: SegmentRecovery
) -> list[Segment]:
    segments: list[Segment] = []
    for number, base in enumerate(bases):
        if segments and base < segments[-1].summary.end_offset:
            # A segment that was begun for a write that then failed, while the one before it went on.
            _set_aside(disk, directory, [base], recovery.report)
            continue
        if segments and recovery.is_scanned(base) and base > segments[-1].summary.end_offset:
            # The records before it were never synced and are lost; the log ends where they were.
            _set_aside(disk, directory, bases[number:], recovery.report)
            break
        segment, outcome = recovery.recover(base)
        segments.append(segment)
        if outcome is Outcome.CUT and number + 1 < len(bases):
            _set_aside(disk, directory, bases[number + 1 :], recovery.report)
            break
        if outcome is Outcome.DAMAGED_END and number + 1 == len(bases):
            segments.append(recovery.begin_segment(segment.summary.end_offset))
    return segments


def _begin_at(log_start: int, segments: list[Segment], recovery: SegmentRecovery) -> list[Segment]:
    """All of the log is below its start, because its end was cut: offsets must not be given out again."""
    begun = recovery.begin_segment(log_start)
    recovery.files.disk.sync_dir(recovery.directory)
    for segment in segments:
        segment.close()
        _remove_segment(recovery.files.disk, segment.path)
    return [begun]


def _remove_segment(disk: Disk, path: str) -> None:
    for suffix in SEGMENT_SUFFIXES:
        disk.unlink(path + suffix)


def _set_aside(disk: Disk, directory: str, bases: list[int], report: RecoveryReport) -> None:
    """Segments after a cut hold nothing that was acknowledged as durable; they are renamed, not deleted."""
    for base in bases:
        for suffix in SEGMENT_SUFFIXES:
            path = f"{directory}/{base:020d}{suffix}"
            if disk.exists(path):
                if suffix == LOG_SUFFIX and (size := disk.size(path)):
                    report.doubt(disk)
                    report.has_cut_batches = True
                    report.cut_bytes += size
                disk.rename(path, path + ".cut")
    disk.sync_dir(directory)


def _report_holes(segments: list[Segment], report: RecoveryReport) -> None:
    for before, after in pairwise(segments):
        if before.summary.end_offset < after.base_offset and not before.summary.compacted:
            report.damages.append(
                f"{before.log_path} ends at offset {before.summary.end_offset}, "
                f"the next segment begins at {after.base_offset}: what was between them is gone"
            )


def _read_start_offset(disk: Disk, directory: str, names: list[str], known: LogCheckpoint | None) -> int:
    start = known.log_start_offset if known else 0
    if START_OFFSET_FILE in names:
        path = f"{directory}/{START_OFFSET_FILE}"
        start = max(start, decode_start_offset(disk.read(path), path))
    return start


def _write_new_files(disk: Disk, files: dict[str, bytes]) -> dict[str, bytes]:
    """Returns those for which there is no room: reads need none of them, so a full disk does not end them."""
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
    """Sync what a killed process may have left in the page cache: its segments, its identity, and their names."""
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
