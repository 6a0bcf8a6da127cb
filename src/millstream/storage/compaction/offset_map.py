"""The latest offset of each key in the dirty part of a log, in bounded memory."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from millstream.protocol.record_batch import BatchHeader
from millstream.protocol.record_spans import record_spans
from millstream.protocol.records import InvalidRecordsError, check_record_count, record_windows, unpack_batch
from millstream.runtime.disk import Disk
from millstream.storage.compaction.job import AbortedTransaction, CleaningJob, SourceSegment
from millstream.storage.compaction.source import read_segment, uncleanable


class AbortedTransactions:
    __slots__ = ("_ranges",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for each in aborted:
            self._ranges.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))

    def covers(self, header: BatchHeader) -> bool:
        """Whether the batch's records were never committed; everything not listed counts as committed."""
        if not header.is_transactional or header.is_control:
            return False
        ranges = self._ranges.get(header.producer_id, ())
        return any(first <= header.base_offset <= last for first, last in ranges)


class OpenTransactions:
    """Which transactions still have records while the log is read from its start.

    A marker may only go after the last record of its transaction: a reader that meets aborted records waits
    for it.
    """

    __slots__ = ("_with_records",)

    def __init__(self) -> None:
        self._with_records: set[int] = set()

    def kept(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._with_records.add(header.producer_id)

    def ends(self, marker: BatchHeader) -> bool:
        """Close the producer's transaction; True when it still has records."""
        had_records = marker.producer_id in self._with_records
        self._with_records.discard(marker.producer_id)
        return had_records


# A digest, an offset and their share of the dictionary, with room for its growth.
BYTES_PER_KEY = 200
_DIGEST_BYTES = 16


class OffsetMap:
    """Keeps keys as digests of 16 bytes; collisions are too unlikely to matter."""

    __slots__ = ("_latest", "_most_keys", "end_offset", "full")

    def __init__(self, first_dirty_offset: int, buffer_bytes: int) -> None:
        self._latest: dict[bytes, int] = {}
        self._most_keys = buffer_bytes // BYTES_PER_KEY
        self.end_offset = first_dirty_offset
        """The map has all keys from the first dirty offset up to, not including, this one."""
        self.full = False

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, found: dict[bytes, int], end_offset: int) -> bool:
        """Add one batch's keys; False when they do not fit. The first batch always fits, for progress."""
        latest = self._latest
        if latest and len(latest) + len(found) > self._most_keys:
            new = sum(digest not in latest for digest in found)
            if len(latest) + new > self._most_keys:
                self.full = True
                return False
        latest.update(found)
        self.end_offset = end_offset
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of this key is known."""
        return self._latest.get(blake2b(key, digest_size=_DIGEST_BYTES).digest(), -1) > offset


def build_offset_map(disk: Disk, job: CleaningJob, sources: Sequence[SourceSegment]) -> OffsetMap:
    """Read [first dirty offset, end of the sources), or as far as the keys fit."""
    offsets = OffsetMap(job.first_dirty_offset, job.dedupe_buffer_bytes)
    aborted = AbortedTransactions(job.aborted)
    for segment in sources:
        if segment.end_offset <= job.first_dirty_offset:
            continue
        for position, header, data in read_segment(disk, job.directory, segment):
            if header.last_offset < job.first_dirty_offset:
                continue
            found: dict[bytes, int] = {}
            if not header.is_control and not aborted.covers(header):
                try:
                    found = _latest_in_batch(header, data, job)
                except InvalidRecordsError as error:
                    raise uncleanable(job.directory, segment, position, error) from None
            if not offsets.add(found, header.last_offset + 1):
                return offsets
        offsets.end_offset = segment.end_offset
    return offsets


def _latest_in_batch(header: BatchHeader, data: memoryview, job: CleaningJob) -> dict[bytes, int]:
    check_record_count(header, job.unpack_limit_records)
    _, pieces = unpack_batch(data, job.unpack_limit_bytes)
    latest: dict[bytes, int] = {}
    previous_delta = -1
    for count, window in record_windows(header, pieces):
        for span in record_spans(header._replace(record_count=count), window, previous_delta):
            previous_delta = span.offset_delta
            if span.key is not None:
                digest = blake2b(span.key, digest_size=_DIGEST_BYTES).digest()
                latest[digest] = header.base_offset + span.offset_delta
    return latest
