"""Verifies the files of a partition that no node has open.

Checks the checksum of every batch, increasing offsets within and between segments, and index entries. Changes nothing.
Bytes at the end that were never known to be synced are no damage: recovery would cut them.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from millstream.protocol.errors import KafkaError
from millstream.protocol.record_batch import BatchHeader, CorruptBatch
from millstream.runtime.disk import Disk, File
from millstream.storage.checkpoint import LogCheckpoint, later_log
from millstream.storage.compaction.swap import SWAP
from millstream.storage.identity import Identity, read_identity
from millstream.storage.index import OffsetIndex, SparseIndex, TimeIndex
from millstream.storage.layout import (
    EPOCHS_FILE,
    IDENTITY_FILE,
    LOG_SUFFIX,
    START_OFFSET_FILE,
    TRUNCATION_FILE,
    decode_start_offset,
    offset_in,
    start_after_dropped,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.scan import find_batch, scan_batches


class Damage(msgspec.Struct, frozen=True):
    path: str
    position: int | None
    offset: int | None
    """The offset in the log, if known."""
    message: str

    def __str__(self) -> str:
        place = "" if self.position is None else f" at byte {self.position}"
        return f"{self.path}{place}: {self.message}"


class Verified(msgspec.Struct):
    """What was verified, and the damage found."""

    directory: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0
    torn_bytes: int = 0
    damages: list[Damage] = msgspec.field(default_factory=list)


Read = Callable[[int], None]


def verify_partition(
    disk: Disk, directory: str, *, known: LogCheckpoint | None = None, read: Read = lambda _size: None
) -> Verified:
    """Verify a partition's directory; `read` is called with the number of bytes read.

    `known` is the checkpoint's entry: how far the log was synced, and which segments must have no gaps because they
    were never compacted. Without it everything must be whole, and gaps are attributed to compaction.
    """
    verified = Verified(directory)
    names = disk.list_dir(directory)
    bases = sorted(base for name in names if (base := offset_in(name, LOG_SUFFIX)) is not None)
    identity = read_identity(disk, directory)
    known = _known_of(identity, known)
    rewritten = identity.rewritten if identity is not None else {}
    summaries = known.summaries().values() if known is not None else ()
    # The checkpoint does not describe files that have replaced others since.
    own = [each for each in summaries if rewritten.get(each.base_offset, each.number) == each.number]
    dense = {each.base_offset for each in own if not each.compacted}
    # If a follower's end was cut since, the checkpoint claims too much.
    synced_until = known if TRUNCATION_FILE not in names else None
    _verify_last_file(directory, bases, synced_until, verified)
    _verify_small_files(disk, directory, names, verified)
    missing = _missing(names, bases, synced_until, rewritten, verified.start_offset)
    for each in missing:
        path = f"{directory}/{each:020d}{LOG_SUFFIX}"
        verified.damages.append(Damage(path, None, each, "is missing"))
    next_offset, was_dense = 0, False
    for number, base in enumerate(bases):
        is_dense = base in dense
        segment = _Segment(disk, f"{directory}/{base:020d}", base, verified, is_dense=is_dense)
        is_gap = was_dense and not any(next_offset <= each < base for each in missing)
        if number and (base < next_offset or (base > next_offset and is_gap)):
            segment.damaged(None, base, f"begins at offset {base}, the one before ends at {next_offset}")
        is_last = number + 1 == len(bases)
        next_offset = segment.verify(_synced_in(base, known), is_last=is_last, read=read)
        segment.verify_length(_synced_in(base, synced_until))
        was_dense = is_dense
    if bases:
        verified.start_offset = max(verified.start_offset, bases[0])
        verified.end_offset = next_offset
    return verified


def _known_of(identity: Identity | None, entry: LogCheckpoint | None) -> LogCheckpoint | None:
    """The entry if it describes this directory; one of an older directory means that nothing was synced."""
    if entry is None or identity is None or identity.topic_id != entry.topic_id:
        return None
    is_described = identity.incarnation == entry.incarnation
    return entry if is_described else later_log(entry.topic, entry.partition, entry.topic_id)


def _synced_in(base: int, known: LogCheckpoint | None) -> int | None:
    """How many bytes of the segment must be whole; None for all."""
    if known is None or base < known.flushed_position[0]:
        return None
    return known.flushed_position[1] if base == known.flushed_position[0] else 0


def _missing(
    names: list[str],
    bases: list[int],
    known: LogCheckpoint | None,
    rewritten: Mapping[int, int],
    start_offset: int,
) -> list[int]:
    """Base offsets of sealed segments that were neither deleted nor replaced, but are missing."""
    if known is None or not bases:
        return []
    start = start_after_dropped(names, bases, max(start_offset, known.log_start_offset))
    return [
        base
        for base, end in known.synced_segments(rewritten).items()
        if base < max(known.flushed_position[0], bases[-1]) and end > start and base not in bases
        # A swap that a crash interrupted is completed by the next start.
        if f"{base:020d}{SWAP}" not in names
    ]


def _verify_last_file(
    directory: str, bases: list[int], known: LogCheckpoint | None, verified: Verified
) -> None:
    if known is None or known.flushed_position == (0, 0):
        return
    base = known.flushed_position[0]
    if not bases or bases[-1] < base:
        message = f"is missing; the log went up to offset {known.flushed_offset}"
        verified.damages.append(Damage(f"{directory}/{base:020d}{LOG_SUFFIX}", None, base, message))


def _verify_small_files(disk: Disk, directory: str, names: list[str], verified: Verified) -> None:
    if names and read_identity(disk, directory) is None:
        message = "is missing" if IDENTITY_FILE not in names else "does not say whose directory it is"
        verified.damages.append(Damage(f"{directory}/{IDENTITY_FILE}", None, None, message))
    for name, decode in ((EPOCHS_FILE, LeaderEpochs.decode), (START_OFFSET_FILE, decode_start_offset)):
        if name not in names:
            continue
        path = f"{directory}/{name}"
        try:
            found = decode(disk.read(path), path)
        except KafkaError as error:
            verified.damages.append(Damage(path, None, None, error.message))
            continue
        if isinstance(found, int):
            verified.start_offset = max(verified.start_offset, found)


class _Segment:
    def __init__(self, disk: Disk, path: str, base: int, verified: Verified, *, is_dense: bool) -> None:
        self._disk = disk
        self._is_dense = is_dense
        self._path = path
        self._base = base
        self._verified = verified
        self._next_offset = base
        self._epoch = -1
        self._max_timestamp = -1
        self._is_whole = True

    def damaged(
        self, position: int | None, offset: int | None, message: str, suffix: str = LOG_SUFFIX
    ) -> None:
        self._verified.damages.append(Damage(self._path + suffix, position, offset, message))

    def verify(self, synced: int | None, *, is_last: bool, read: Read) -> int:
        """Returns the offset after its last batch."""
        # By position and by offset. Each batch removes its entry: entries left at the end are wrong.
        offsets = {position: offset for offset, position in self._entries(OffsetIndex, ".index")}
        times = {offset: timestamp for timestamp, offset in self._entries(TimeIndex, ".timeindex")}
        last_time = max(times.values(), default=-1)
        file = self._disk.open(self._path + LOG_SUFFIX, read_only=True)
        try:
            size = file.size()
            self._verified.segments += 1
            for position, header in self._batches(file, size, size if synced is None else synced):
                read(header.size_bytes)
                self._verify_batch(position, header)
                relative = header.last_offset - self._base
                if offsets.get(position) == relative:
                    del offsets[position]
                if times.get(relative) == self._max_timestamp:
                    del times[relative]
        finally:
            file.close()
        # The correct indexes of a damaged segment are unknown.
        if self._is_whole:
            self._verify_indexes(offsets, times)
            if not is_last and 0 <= last_time < self._max_timestamp:
                self.damaged(
                    None,
                    None,
                    f"ends with timestamp {last_time}, the segment's largest is {self._max_timestamp}",
                    ".timeindex",
                )
        return self._next_offset

    def verify_length(self, synced: int | None) -> None:
        path = self._path + LOG_SUFFIX
        if synced is not None and self._disk.size(path) < synced:
            size = self._disk.size(path)
            self.damaged(
                size, self._next_offset, f"the file ends there, and {synced} bytes of it were synced"
            )

    def _batches(self, file: File, size: int, synced: int) -> Iterator[tuple[int, BatchHeader]]:
        position = 0
        while position < size:
            try:
                for position, header, _ in scan_batches(file, position, size):  # noqa: B020
                    yield position, header
            except CorruptBatch as error:
                following = find_batch(file, error.position + 1, size)
                if error.position >= synced and following is None:
                    self._verified.torn_bytes += size - error.position
                    return
                self._is_whole = False
                self.damaged(error.position, self._next_offset, error.message)
                if following is None:
                    return
                position = following
            else:
                return

    def _verify_batch(self, position: int, header: BatchHeader) -> None:
        verified = self._verified
        is_missing = self._is_dense and self._is_whole and header.base_offset > self._next_offset
        if header.base_offset < self._next_offset or is_missing:
            self.damaged(
                position,
                header.base_offset,
                f"offset {header.base_offset} where {self._next_offset} was expected",
            )
        if header.leader_epoch < self._epoch:
            self.damaged(
                position, header.base_offset, f"leader epoch {header.leader_epoch} after epoch {self._epoch}"
            )
        self._epoch = max(self._epoch, header.leader_epoch)
        self._next_offset = max(self._next_offset, header.last_offset + 1)
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        verified.batches += 1
        verified.records += header.record_count
        verified.size_bytes += header.size_bytes

    def _verify_indexes(self, offsets: Mapping[int, int], times: Mapping[int, int]) -> None:
        for position, relative in offsets.items():
            offset = self._base + relative
            self.damaged(
                None, offset, f"no batch that ends with {offset} begins at byte {position}", ".index"
            )
        for relative, timestamp in times.items():
            offset = self._base + relative
            self.damaged(
                None, offset, f"{timestamp} is not the largest timestamp up to offset {offset}", ".timeindex"
            )

    def _entries(self, kind: type[SparseIndex], suffix: str) -> Iterator[tuple[int, int]]:
        """Empty if the index is missing, like that of the active segment."""
        path = self._path + suffix
        if not self._disk.exists(path):
            return
        data = self._disk.read(path)
        width = kind.entry.size
        if len(data) % width:
            self.damaged(len(data) - len(data) % width, None, "ends within an entry", suffix)
        first, second = -1, -1
        for position in range(0, len(data) - width + 1, width):
            pair = kind.entry.unpack_from(data, position)
            if pair[0] <= first or pair[1] <= second:
                self.damaged(position, None, "an entry is not after the one before it", suffix)
                return
            first, second = pair
            yield first, second
