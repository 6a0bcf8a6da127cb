"""What compaction must know of transactions."""

from collections.abc import Iterable

from millstream.protocol.record_batch import BatchHeader
from millstream.storage.compaction.job import AbortedTransaction


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
