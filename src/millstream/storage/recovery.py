"""Open a log after a crash: trust what was synced before the last checkpoint, scan the rest, cut a torn tail.

What was recovered must be made durable (`make_durable`) before anybody builds on it: the process may have been killed
with names and bytes still in the page cache.
"""

from contextlib import suppress

import msgspec

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import NO_ROOM, Disk
from millstream.runtime.sometimes import sometimes
from millstream.storage.checkpoint import LogCheckpoint, undescribed
from millstream.storage.compaction.swap import recover_swap
from millstream.storage.identity import Identity, read_identity
from millstream.storage.layout import (
    CUT_FILE,
    DROPPED_SUFFIX,
    EPOCHS_FILE,
    IDENTITY_FILE,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    START_OFFSET_FILE,
    TEMPORARY_SUFFIX,
    TRUNCATION_FILE,
    decode_start_offset,
    encode_start_offset,
    offset_in,
    parent_directories,
    start_after_dropped,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log import PartitionLog
from millstream.storage.log_state import LogState
from millstream.storage.open_files import OpenFiles
from millstream.storage.rebuilt_state import RebuiltState
from millstream.storage.segment import Segment
from millstream.storage.segment_recovery import ANY_EPOCH, Outcome, RecoveryReport, SegmentRecovery, gapped
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
    was_written: bool = True,
    identity: Identity,
    new_incarnation: bytes,
) -> tuple[LogState, RecoveryReport]:
    """The log as it is on disk. `known` is what a checkpoint says of this very directory; None when nothing is known.

    Where other nodes keep the log too, all replicas are known to have it up to `committed`. `was_written`: it may have
    had records, also where there are none now.
    """
    disk = files.disk
    report = RecoveryReport(directory)
    recover_swap(disk, directory)
    names = _names_without_litter(disk, directory)
    report.is_doubtful = CUT_FILE in names
    identity = _identified(identity, known, new_incarnation)
    marker = read_marker(disk, directory) if TRUNCATION_FILE in names else None
    if marker is None and TRUNCATION_FILE in names:
        # The log was cut, and it is not known where: nothing counts as synced.
        report.remade.append(TRUNCATION_FILE)
        marker = TruncationMarker((known.truncations if known else 0) + 1, 0, 0, (0, 0))
        known = undescribed(known, config) if known is not None else None
    truncations = max(known.truncations if known else 0, marker.number if marker else 0)
    is_cut = False
    if marker is not None and known is not None and marker.number > known.truncations:
        known, is_cut = _known_after(marker, known), True
    epochs = _flushed_epochs(disk, directory, names, known, report)
    bases = _bases(names)
    log_start = _read_start_offset(disk, directory, names, bases, known, epochs)
    log_start = start_after_dropped(names, bases, log_start)
    dropped = [name for name in names if offset_in(name, DROPPED_SUFFIX) is not None]
    if known is not None:
        bases = _with_empty_segments(disk, directory, bases, known, identity, log_start)
    bases = _segments_to_recover(disk, directory, names, bases, known, log_start, report)
    rebuilt = RebuiltState.begin(disk, directory, names, _scan_from(bases, known), now_ms, epochs)
    if rebuilt.has_lost_epochs and committed is not None:
        report.doubt(disk)
    recovery = SegmentRecovery(
        files,
        directory,
        config,
        known,
        rebuilt,
        report,
        gapped(names),
        max_epoch,
        committed,
        identity.rewritten,
    )
    segments = _recover_segments(disk, directory, bases, recovery, log_start)
    if segments and segments[-1].summary.end_offset < log_start:
        segments = _begin_at(log_start, segments, recovery)
    end = segments[-1].summary.end_offset if segments else 0
    if committed is not None and (end < committed or (was_written and not segments)):
        # Its files are lost. Other replicas know better.
        report.doubt(disk)
    start = max(log_start, segments[0].base_offset) if segments else log_start
    position = (segments[-1].base_offset, segments[-1].summary.size_bytes) if segments else (0, 0)
    rebuilt.fit(disk, directory, names, start, max(end, start))
    new_files = rebuilt.new_files(directory, names, position[0])
    if names:
        new_files |= _remade_files(disk, directory, names, known, identity, start, rebuilt.epochs, report)
    if dropped:
        new_files[f"{directory}/{START_OFFSET_FILE}"] = encode_start_offset(start)
        report.remade = [each for each in report.remade if each != START_OFFSET_FILE]
        report.garbage = dropped
    unwritten = _write_new_files(disk, new_files)
    # A cut is written down before it is made: that the log ends there does not prove that the cut is on disk.
    is_as_known = known is not None and not is_cut and (0, 0) < position == known.flushed_position
    report.is_synced = not names or (is_as_known and not report.damaged_segments and not report.remade)
    damaged = {each for each in known.damaged if each in bases} if known is not None else set()
    report.damaged_segments |= damaged
    if unwritten:
        # Until they are written, another recovery has to learn it all again. The end may have been cut.
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
        incarnation=identity.incarnation,
        rewrites=identity.rewrites,
        rewritten=dict(identity.rewritten),
        damaged=set(report.damaged_segments),
        marker=marker,
    )
    return state, report


def _identified(identity: Identity, known: LogCheckpoint | None, new_incarnation: bytes) -> Identity:
    """Numbers go on from the highest that the directory or the checkpoint has."""
    rewrites = max(identity.rewrites, known.rewrites if known is not None else 0)
    return msgspec.structs.replace(
        identity, incarnation=identity.incarnation or new_incarnation, rewrites=rewrites
    )


def _flushed_epochs(
    disk: Disk, directory: str, names: list[str], known: LogCheckpoint | None, report: RecoveryReport
) -> LeaderEpochs | None:
    """None when they are lost and must be learned from the batches."""
    stored = _stored_epochs(disk, directory, names)
    if stored is not None:
        if known is None or not known.epochs or not stored.entries:
            return stored
        start = _stored_start(disk, directory, names)
        first = stored.entries[0][1]
        if start is None:
            # It may be lost; a first epoch behind all that the checkpoint knew is none.
            start = first if first < known.flushed_offset else 0
        return _as_known(stored, known, max(start, known.log_start_offset), report)
    if not _was_flushed(names, known):
        return LeaderEpochs()
    return LeaderEpochs(known.epochs) if known is not None and known.epochs else None


def _as_known(stored: LeaderEpochs, known: LogCheckpoint, start: int, report: RecoveryReport) -> LeaderEpochs:
    """Kafka's format of the file has no checksum; the checkpoint has one, and knows the epochs up to its end."""
    upper = known.flushed_offset
    if _between(known.epochs, start, upper) == _between(stored.entries, start, upper):
        return stored
    report.remade.append(EPOCHS_FILE)
    epochs = LeaderEpochs(known.epochs)
    epochs.truncate_from_end(upper)
    for epoch, begin in stored.entries:
        if begin >= upper and epoch > epochs.latest:
            epochs.assign(epoch, begin)
    epochs.dirty = True
    return epochs


def _between(entries: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    epochs = LeaderEpochs(entries)
    epochs.truncate_from_start(start)
    epochs.truncate_from_end(end)
    return epochs.entries


def _stored_epochs(disk: Disk, directory: str, names: list[str]) -> LeaderEpochs | None:
    path = f"{directory}/{EPOCHS_FILE}"
    if EPOCHS_FILE in names:
        with suppress(KafkaError):
            return LeaderEpochs.decode(disk.read(path), path)
    return None


def _was_flushed(names: list[str], known: LogCheckpoint | None) -> bool:
    """Every flush leaves the leader epochs."""
    return EPOCHS_FILE in names or (known is not None and known.flushed_position > (0, 0))


def _bases(names: list[str]) -> list[int]:
    return sorted(base for name in names if (base := offset_in(name, LOG_SUFFIX)) is not None)


def _remade_files(
    disk: Disk,
    directory: str,
    names: list[str],
    known: LogCheckpoint | None,
    identity: Identity,
    start: int,
    epochs: LeaderEpochs,
    report: RecoveryReport,
) -> dict[str, bytes]:
    """Files that are missing, damaged or of an earlier version, as they should be."""
    files: dict[str, bytes] = {}
    found = read_identity(disk, directory)
    if found != identity:
        files[IDENTITY_FILE] = identity.encode()
    if start and _stored_start(disk, directory, names) is None:
        files[START_OFFSET_FILE] = encode_start_offset(start)
    if _was_flushed(names, known) and _stored_epochs(disk, directory, names) is None:
        files[EPOCHS_FILE] = epochs.encode()
    remade = [name for name in files if name != IDENTITY_FILE or found is None]
    if remade:
        sometimes("a small file beside the records was made again")
    report.remade += remade
    return {f"{directory}/{name}": data for name, data in files.items()}


def _known_after(marker: TruncationMarker, known: LogCheckpoint) -> LogCheckpoint:
    """What is still certain of a checkpoint that was written before the end was cut."""
    return msgspec.structs.replace(
        known,
        log_start_offset=min(known.log_start_offset, marker.log_start_offset),
        flushed_offset=min(known.flushed_offset, marker.end_offset),
        flushed_position=min(known.flushed_position, marker.position),
        cleaned_offset=min(known.cleaned_offset, marker.end_offset),
    )


def _with_empty_segments(
    disk: Disk, directory: str, bases: list[int], known: LogCheckpoint, identity: Identity, log_start: int
) -> list[int]:
    """A segment in which compaction left no batch, or that was just begun, loses nothing with its file: it is made
    again.
    """
    missing = [
        base
        for base, each in known.summaries().items()
        if not each.size_bytes and base not in bases and base <= known.flushed_position[0]
        if each.end_offset >= log_start and identity.rewritten.get(base, each.number) == each.number
    ]
    for base in missing:
        sometimes("the file of an empty segment was made again")
        disk.open(f"{directory}/{base:020d}{LOG_SUFFIX}", create=True).close()
    return sorted((*bases, *missing))


def _segments_to_recover(
    disk: Disk,
    directory: str,
    names: list[str],
    bases: list[int],
    known: LogCheckpoint | None,
    log_start: int,
    report: RecoveryReport,
) -> list[int]:
    """Base offsets of the segments that belong to the log."""
    _require_synced_files(directory, bases, known)
    while len(bases) > 1 and bases[1] <= log_start:
        # It was deleted, but the disk forgot.
        _remove_segment(disk, f"{directory}/{bases.pop(0):020d}")
    if bases and bases[0] > log_start and not _was_flushed(names, known):
        # Every flush leaves that file, so there was none: the first segment is not deleted but lost.
        _set_aside(disk, directory, bases, report)
        return []
    return bases


def _names_without_litter(disk: Disk, directory: str) -> list[str]:
    """What is in the directory, after files that were being written when the process ended are gone."""
    names = disk.list_dir(directory)
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX):
            # A name that cannot be removed is no file of ours.
            with suppress(OSError):
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
    disk: Disk, directory: str, bases: list[int], recovery: SegmentRecovery, log_start: int
) -> list[Segment]:
    segments: list[Segment] = []
    for number, base in enumerate(bases):
        if segments and base < segments[-1].summary.end_offset:
            # A segment that was begun for a write that then failed, while the one before it went on.
            _set_aside(disk, directory, [base], recovery.report)
            continue
        if segments and segments[-1].base_offset in recovery.report.damaged_segments:
            recovery.extend_damage(segments[-1], base)
        hole = recovery.hole_before(base, segments, log_start)
        is_lost = hole is None and bool(segments) and recovery.is_lost_before(base, segments[-1])
        if is_lost or (hole is not None and recovery.may_be_uncommitted(hole)):
            # The records before it were never synced, or need not be committed; the log ends where they were.
            _set_aside(disk, directory, bases[number:], recovery.report)
            break
        if hole is not None:
            if segments and segments[-1].base_offset == hole:
                segments.pop().close()
            segments.append(recovery.mark_hole(hole, base))
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


def _read_start_offset(
    disk: Disk,
    directory: str,
    names: list[str],
    bases: list[int],
    known: LogCheckpoint | None,
    epochs: LeaderEpochs | None,
) -> int:
    start = known.log_start_offset if known else 0
    stored = _stored_start(disk, directory, names)
    if stored is not None:
        return max(start, stored)
    is_damaged = START_OFFSET_FILE in names
    if epochs is not None and epochs.entries:
        # They are written with every change of the start.
        first = epochs.entries[0][1]
        is_deleted = bool(bases) and start < bases[0] <= first
        return max(start, first) if is_damaged or is_deleted else start
    if is_damaged and not bases and known is None:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{directory}/{START_OFFSET_FILE} cannot be read, and nothing else tells where the log begins",
        )
    return max(start, bases[0]) if is_damaged and bases else start


def _stored_start(disk: Disk, directory: str, names: list[str]) -> int | None:
    """None when the file is not there, or cannot be read."""
    path = f"{directory}/{START_OFFSET_FILE}"
    if START_OFFSET_FILE in names:
        with suppress(KafkaError):
            return decode_start_offset(disk.read(path), path)
    return None


def _write_new_files(disk: Disk, files: dict[str, bytes]) -> dict[str, bytes]:
    """Returns the files for which there is no room: reads need none of them, so a full disk ends nothing."""
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
