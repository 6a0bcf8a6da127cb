"""Open a log after a crash: trust what was synced before the last checkpoint, scan the rest, cut a torn tail.

Two kinds of damage are told apart. Bytes that were never known to be synced may be torn: the log ends before them,
and if anything readable follows, the cut bytes are kept in a `.cut` file. Bytes that were synced must be whole: a
batch that fails its checksum there is left in place, reported with file and position, and refused when it is read.
"""

from dataclasses import dataclass, field

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    check_stored,
    read_header,
)
from millstream.runtime.disk import Disk, File
from millstream.storage.checkpoint import LogCheckpoint
from millstream.storage.compaction.swap import recover_swap
from millstream.storage.layout import (
    EPOCHS_FILE,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    START_OFFSET_FILE,
    decode_start_offset,
    snapshot_path,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log import LogState
from millstream.storage.open_files import OpenFiles
from millstream.storage.producer_state import ProducerStates
from millstream.storage.scan import scan_batches
from millstream.storage.segment import Segment, SegmentSummary

_RESYNC_PIECE_BYTES = 4 << 20


@dataclass(slots=True)
class RecoveryReport:
    directory: str
    scanned_bytes: int = 0
    cut_bytes: int = 0
    damages: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Rebuilt:
    """What the scan of unsynced segments learns on its way."""

    epochs: LeaderEpochs
    producers: ProducerStates
    producers_from: int
    now_ms: int

    def see(self, header: BatchHeader) -> None:
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0 and header.base_offset >= self.producers_from and not header.is_control:
            self.producers.update(header, header.base_offset, self.now_ms)


def recover_log(
    files: OpenFiles, directory: str, config: TopicConfig, known: LogCheckpoint | None, now_ms: int
) -> tuple[LogState, RecoveryReport]:
    disk = files.disk
    report = RecoveryReport(directory)
    recover_swap(disk, directory)
    names = disk.list_dir(directory)
    bases = sorted(
        int(name.removesuffix(LOG_SUFFIX))
        for name in names
        if name.endswith(LOG_SUFFIX) and name[:20].isdigit()
    )
    if known is not None and known.segments and (not bases or bases[-1] < known.flushed_position[0]):
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{directory} should hold records up to offset {known.flushed_offset} but its files are gone; "
            "restore them, or delete and re-create the topic",
        )
    log_start = _read_start_offset(disk, directory, names, known)
    rebuilt = _start_rebuilding(disk, directory, names, bases, known, now_ms)
    segments: list[Segment] = []
    for number, base in enumerate(bases):
        segment, whole = _recover_segment(files, directory, base, config, known, rebuilt, report)
        segments.append(segment)
        if not whole and number + 1 < len(bases):
            _set_aside(disk, directory, bases[number + 1 :], report)
            break
    for segment in segments:
        if segment.index.dirty:
            segment.file.sync()
    end = segments[-1].summary.end_offset if segments else 0
    rebuilt.epochs.truncate_from_end(max(end, log_start))
    rebuilt.epochs.truncate_from_start(log_start)
    start = max(log_start, segments[0].base_offset) if segments else log_start
    position = (segments[-1].base_offset, segments[-1].summary.size_bytes) if segments else (0, 0)
    cleaned = min(known.cleaned_offset, end) if known else 0
    return LogState(
        segments, start, max(end, start), position, cleaned, rebuilt.epochs, rebuilt.producers
    ), report


def _read_start_offset(disk: Disk, directory: str, names: list[str], known: LogCheckpoint | None) -> int:
    start = known.log_start_offset if known else 0
    if START_OFFSET_FILE in names:
        path = f"{directory}/{START_OFFSET_FILE}"
        start = max(start, decode_start_offset(disk.read(path), path))
    return start


def _start_rebuilding(
    disk: Disk, directory: str, names: list[str], bases: list[int], known: LogCheckpoint | None, now_ms: int
) -> _Rebuilt:
    """Producers as of the newest snapshot that is not ahead of the scan, epochs as last written."""
    epochs = LeaderEpochs()
    if EPOCHS_FILE in names:
        path = f"{directory}/{EPOCHS_FILE}"
        epochs = LeaderEpochs.decode(disk.read(path), path)
    scan_from = next((base for base in bases if known is None or base >= known.flushed_position[0]), 0)
    snapshots = sorted(
        int(name[:20]) for name in names if name.endswith(SNAPSHOT_SUFFIX) and name[:20].isdigit()
    )
    for offset in reversed(snapshots):
        if offset > scan_from:
            continue
        states = ProducerStates.decode(disk.read(snapshot_path(directory, offset)))
        if states is not None:
            return _Rebuilt(epochs, states, offset, now_ms)
    return _Rebuilt(epochs, ProducerStates(), scan_from, now_ms)


def _recover_segment(
    files: OpenFiles,
    directory: str,
    base: int,
    config: TopicConfig,
    known: LogCheckpoint | None,
    rebuilt: _Rebuilt,
    report: RecoveryReport,
) -> tuple[Segment, bool]:
    """The segment, and whether it is whole (nothing had to be cut)."""
    path = f"{directory}/{base:020d}{LOG_SUFFIX}"
    size = files.disk.size(path)
    durable_size = 0
    created_ms = rebuilt.now_ms
    if known is not None:
        summary = next((SegmentSummary(*entry) for entry in known.segments if entry[0] == base), None)
        if base < known.flushed_position[0]:
            if summary is not None and summary.size_bytes == size:
                segment = Segment(files, directory, summary, stored=True)
                if rebuilt.producers_from < summary.end_offset:
                    for _, header, _ in segment.scan():
                        rebuilt.see(header)
                return segment, True
            durable_size = size
        elif base == known.flushed_position[0]:
            durable_size = known.flushed_position[1]
        if summary is not None:
            created_ms = summary.created_ms
    segment = Segment(
        files, directory, SegmentSummary(base, end_offset=base, created_ms=created_ms), stored=False
    )
    segment.file.drop_cache()
    end = _scan(segment, size, durable_size, config, rebuilt, report)
    segment.index.dirty = True
    if end < size:
        _cut(files.disk, segment, end, size, report)
        return segment, False
    return segment, True


def _scan(
    segment: Segment,
    size: int,
    durable_size: int,
    config: TopicConfig,
    rebuilt: _Rebuilt,
    report: RecoveryReport,
) -> int:
    """Count and index every batch; returns where the log ends."""
    position = 0
    summary = segment.summary
    while position < size:
        try:
            for position, header, _ in scan_batches(segment.file, position, size):  # noqa: B020 - read once
                if header.base_offset < summary.end_offset:
                    raise CorruptBatch(
                        f"offset {header.base_offset} where {summary.end_offset} was expected", position
                    )
                summary.size_bytes = position
                segment.note_batch(
                    header, header.base_offset, header.max_timestamp, position, config.index_interval_bytes
                )
                rebuilt.see(header)
            position = size
        except CorruptBatch as error:
            position = error.position
            following = find_batch(segment.file, position + 1, size)
            if position >= durable_size or following is None:
                break
            report.damages.append(f"{segment.log_path} at byte {position}: {error.message}")
            position = following
    report.scanned_bytes += position
    summary.size_bytes = position
    if position < durable_size:
        raise CorruptBatch(
            f"{segment.log_path} at byte {position}: bytes that were synced up to {durable_size} cannot be read",
            position,
        )
    return position


def find_batch(file: File, position: int, end: int) -> int | None:
    """The next place at or after `position` where a whole batch with a good checksum stands."""
    while position < end:
        piece = memoryview(file.pread(min(_RESYNC_PIECE_BYTES, end - position), position))
        data = piece.obj if isinstance(piece.obj, bytes) else bytes(piece)
        at = data.find(MAGIC, 16)
        while at >= 0:
            start = at - 16
            if len(piece) - start >= HEADER_SIZE:
                header = read_header(piece, start)
                if HEADER_SIZE <= header.size_bytes <= end - position - start and _holds(
                    file, position + start, header
                ):
                    return position + start
            at = data.find(MAGIC, at + 1)
        if len(piece) < _RESYNC_PIECE_BYTES:
            return None
        position += len(piece) - HEADER_SIZE
    return None


def _holds(file: File, position: int, header: BatchHeader) -> bool:
    if (
        header.magic != MAGIC
        or header.record_count < 0
        or header.last_offset_delta < 0
        or header.base_offset < 0
    ):
        return False
    data = memoryview(file.pread(header.size_bytes, position))
    try:
        check_stored(data, 0, header)
    except CorruptBatch:
        return False
    return True


def _cut(disk: Disk, segment: Segment, end: int, size: int, report: RecoveryReport) -> None:
    if find_batch(segment.file, end + 1, size) is not None:
        disk.write_atomically(f"{segment.log_path}.{end}.cut", segment.file.pread(size - end, end))
    segment.file.truncate(end)
    report.cut_bytes += size - end


def _set_aside(disk: Disk, directory: str, bases: list[int], report: RecoveryReport) -> None:
    """Segments after a cut hold nothing that was acknowledged as durable; they are renamed, not deleted."""
    for base in bases:
        for suffix in SEGMENT_SUFFIXES:
            path = f"{directory}/{base:020d}{suffix}"
            if disk.exists(path):
                if suffix == LOG_SUFFIX:
                    report.cut_bytes += disk.size(path)
                disk.rename(path, path + ".cut")
    disk.sync_dir(directory)
