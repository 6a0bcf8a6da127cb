"""Finds the batches that a reader asks for and returns them whole and verified."""

from typing import NamedTuple

from millstream.protocol.checksum import crc32c
from millstream.protocol.record_batch import CRC_START, HEADER_SIZE, HEADER_START, MAGIC, PREFIX_SIZE
from millstream.protocol.wire import I64
from millstream.runtime.disk import Disk
from millstream.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from millstream.storage.segment import Segment, find_segment

_HINTS = 32


class LogRead(NamedTuple):
    data: memoryview
    next_offset: int


class LogReader:
    """Reads from a log's list of segments, which the log changes in place."""

    __slots__ = ("_disk", "_hints", "_segments")

    def __init__(self, disk: Disk, segments: list[Segment]) -> None:
        self._disk = disk
        self._segments = segments
        self._hints: dict[int, tuple[Segment, int]] = {}

    def forget_places(self) -> None:
        """Segments were sealed, dropped or replaced: remembered positions are no longer valid."""
        self._hints.clear()

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, epochs: LeaderEpochs, *, min_one: bool
    ) -> LogRead:
        found, earliest = self._hints.get(offset), offset
        if found is None:
            found, earliest = self._locate(offset), 0
        if found is None:
            return LogRead(memoryview(b""), offset)
        segment, position = found
        return self._read_batches(
            segment, position, offset, earliest, max_bytes, upper_offset, epochs, min_one
        )

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        for segment in self._segments[max(0, find_segment(self._segments, offset)) :]:
            position = segment.position_of(self._disk, offset)
            if position is not None:
                return segment, position
        return None

    def _read_batches(
        self,
        segment: Segment,
        position: int,
        offset: int,
        earliest: int,
        max_bytes: int,
        upper_offset: int,
        epochs: LeaderEpochs,
        min_one: bool,
    ) -> LogRead:
        """`earliest`: the batch at `position` does not begin before it."""
        summary = segment.summary
        end = summary.size_bytes
        wanted = max(HEADER_SIZE, max_bytes)
        view = _read_part(segment, position, min(wanted, end - position))
        size = len(view)
        at = 0
        next_offset = max(offset, summary.base_offset)
        unpack = HEADER_START.unpack_from
        expected_epoch, until = epochs.span_of(next_offset)
        while size - at >= HEADER_SIZE:
            base, length, epoch, magic, crc, last_delta = unpack(view, at)
            stop = at + PREFIX_SIZE + length
            if base != next_offset and (
                base < earliest
                or base + last_delta < next_offset
                or base + last_delta >= summary.end_offset
                or (base > next_offset and not _may_be_gap(segment, position, view, stop, base + last_delta))
            ):
                # No checksum covers offsets, but they must follow each other.
                if at == 0:
                    raise segment.corrupt(position, f"record batch claims offset {base}")
                break
            if base >= upper_offset:
                break
            if base >= until:
                expected_epoch, until = epochs.span_of(base)
            if epoch != expected_epoch and expected_epoch != UNDEFINED_EPOCH:
                # No checksum covers epochs either, and followers compare histories by them.
                if at == 0:
                    raise segment.corrupt(position, f"record batch claims leader epoch {epoch}")
                break
            if stop > size:
                if at > 0 or not min_one:
                    break
                if position + stop > end or length < HEADER_SIZE - PREFIX_SIZE:
                    raise segment.corrupt(position, f"record batch claims {stop} bytes")
                view = memoryview(segment.file.pread(stop, position))
                size = len(view)
            if magic != MAGIC or stop <= at or crc != crc32c(view[at + CRC_START : stop]):
                if at == 0:
                    raise segment.corrupt(position, "record batch fails its checksum")
                break
            at = stop
            next_offset = earliest = base + last_delta + 1
        if at:
            self._remember(next_offset, segment, position + at)
        return LogRead(view[:at], next_offset)

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        """Remember where a following consumer's next read starts, to save the look-up."""
        hints = self._hints
        if position >= segment.summary.size_bytes and segment is not self._segments[-1]:
            return
        if len(hints) >= _HINTS:
            hints.pop(next(iter(hints)))
        hints[offset] = segment, position


def _may_be_gap(segment: Segment, position: int, view: memoryview, stop: int, last_offset: int) -> bool:
    """Whether records may be missing before a batch that claims to end with `last_offset`, at `stop` in `view`.

    The next batch, which is not in `view` if this one is the last of a read, must have higher offsets.
    """
    if not segment.summary.compacted or stop <= 0:
        return False
    following = view[stop : stop + I64.size]
    if len(following) < I64.size and position + stop < segment.summary.size_bytes:
        following = memoryview(segment.file.pread(I64.size, position + stop))
    return len(following) < I64.size or int(I64.unpack(following)[0]) > last_offset


def _read_part(segment: Segment, position: int, size: int) -> memoryview:
    view = memoryview(segment.file.pread(size, position))
    if len(view) < HEADER_SIZE and position < segment.summary.size_bytes:
        raise segment.corrupt(position, f"the file ends after {len(view)} bytes of a record batch")
    return view
