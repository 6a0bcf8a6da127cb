"""Decides which records of a batch survive, and rewrites the batch if some do not.

Offsets never change: a batch keeps its base offset, last offset delta, producer id, epoch and sequence
whichever records are removed, so that readers see gaps and idempotent producers find their last sequence
number.

The first cleaning that sees a tombstone gives its batch a delete horizon (attribute bit 6, the time in place
of the base timestamp); the first cleaning after that time drops it. Markers of transactions without records
are treated alike.
"""

from collections.abc import Mapping

from millstream.protocol.record_batch import CODEC_MASK, DELETE_HORIZON_BIT, BatchHeader
from millstream.protocol.record_spans import RecordSpan, record_spans, with_timestamp_delta
from millstream.protocol.records import check_record_count, open_batch, seal_batch
from millstream.storage.compaction.job import CleaningJob
from millstream.storage.compaction.offset_map import AbortedTransactions, OffsetMap, OpenTransactions

Batch = bytes | memoryview


class BatchCleaner:
    """Takes every batch of the log in order, from the first segment on."""

    def __init__(self, job: CleaningJob, offsets: OffsetMap, last_batches: Mapping[int, int]) -> None:
        self._offsets = offsets
        self._last_batches = last_batches
        self._log_end_offset = job.log_end_offset
        self._aborted = AbortedTransactions(job.aborted)
        self._open = OpenTransactions()
        self._now_ms = job.now_ms
        self._new_horizon_ms = job.now_ms + job.delete_retention_ms
        self._unpack_limit_bytes = job.unpack_limit_bytes
        self._unpack_limit_records = job.unpack_limit_records
        self._epoch = -1
        self._begins_epoch = False
        self.next_delete_horizon_ms: int | None = None
        self.records_read = 0
        self.records_kept = 0

    def clean(self, header: BatchHeader, data: memoryview) -> Batch | None:
        """`data` itself if all of it stays, new bytes if it was rewritten, None if nothing stays."""
        self.records_read += header.record_count
        self._begins_epoch = header.leader_epoch > self._epoch
        self._epoch = max(self._epoch, header.leader_epoch)
        if header.base_offset >= self._offsets.end_offset:
            self.records_kept += header.record_count
            return data
        if header.is_control:
            return self._clean_marker(header, data)
        if header.record_count == 0 or self._aborted.covers(header):
            return self._without_records(header, data)
        check_record_count(header, self._unpack_limit_records)
        _, payload = open_batch(data, self._unpack_limit_bytes)
        kept, has_tombstones = self._kept_spans(header, payload)
        if not kept:
            return self._without_records(header, data)
        self._open.kept(header)
        self.records_kept += len(kept)
        horizon_ms = self._horizon_of(header) if has_tombstones else None
        sets_horizon = horizon_ms is not None and not header.attributes & DELETE_HORIZON_BIT
        if len(kept) == header.record_count and not sets_horizon:
            return data
        return _rebuilt(header, payload, kept, horizon_ms if sets_horizon else None)

    def _kept_spans(self, header: BatchHeader, payload: bytes) -> tuple[list[RecordSpan], bool]:
        """The records that stay, and whether tombstones are among them."""
        drops_tombstones = self._is_past_horizon(header)
        is_superseded = self._offsets.is_superseded
        base_offset = header.base_offset
        kept: list[RecordSpan] = []
        has_tombstones = False
        for span in record_spans(header, payload):
            if span.key is None or is_superseded(span.key, base_offset + span.offset_delta):
                continue
            if not span.has_value:
                if drops_tombstones:
                    continue
                has_tombstones = True
            kept.append(span)
        return kept, has_tombstones

    def _clean_marker(self, header: BatchHeader, data: memoryview) -> Batch | None:
        if self._open.ends(header):
            self.records_kept += header.record_count
            return data
        if header.record_count == 0 or self._is_past_horizon(header):
            return self._without_records(header, data)
        self.records_kept += header.record_count
        horizon_ms = self._horizon_of(header)
        if header.attributes & DELETE_HORIZON_BIT:
            return data
        _, payload = open_batch(data, self._unpack_limit_bytes)
        return _rebuilt(header, payload, list(record_spans(header, payload)), horizon_ms)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return bool(header.attributes & DELETE_HORIZON_BIT) and self._now_ms >= header.base_timestamp

    def _horizon_of(self, header: BatchHeader) -> int:
        """The batch's delete horizon, a new one if it has none; keeps track of the earliest."""
        has_one = header.attributes & DELETE_HORIZON_BIT
        horizon_ms = header.base_timestamp if has_one else self._new_horizon_ms
        if self.next_delete_horizon_ms is None or horizon_ms < self.next_delete_horizon_ms:
            self.next_delete_horizon_ms = horizon_ms
        return horizon_ms

    def _without_records(self, header: BatchHeader, data: memoryview) -> Batch | None:
        """None, or an empty batch where something would otherwise be lost: the producer's last sequence number; a
        leader epoch, for a replica that copies this log and leads later would make others cut what they have of it.

        The log's last batch stays as it is: a new replica that is sent no batch up to there would never be in sync, and
        consumers that are sent none with records may ask for the same offset again and again.
        """
        if header.last_offset + 1 == self._log_end_offset:
            self.records_kept += header.record_count
            return data
        is_of_producer = header.producer_id >= 0
        is_of_producer &= self._last_batches.get(header.producer_id) == header.last_offset
        if not is_of_producer and not self._begins_epoch:
            return None
        if header.record_count == 0:
            return data
        # Clear the codec: readers would try to decompress the empty payload.
        return seal_batch(header._replace(record_count=0, attributes=header.attributes & ~CODEC_MASK), b"")


def _rebuilt(header: BatchHeader, payload: bytes, kept: list[RecordSpan], horizon_ms: int | None) -> bytes:
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    if not header.log_append_time:
        max_timestamp = base_timestamp + max(span.timestamp_delta for span in kept)
    attributes = header.attributes
    if horizon_ms is None:
        parts = [payload[span.start : span.end] for span in kept]
    else:
        shift = base_timestamp - horizon_ms
        parts = [with_timestamp_delta(payload, span, span.timestamp_delta + shift) for span in kept]
        base_timestamp = horizon_ms
        attributes |= DELETE_HORIZON_BIT
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return seal_batch(changed, b"".join(parts))
