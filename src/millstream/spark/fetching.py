"""Reads one range of one partition: pipelines fetches, checks and decompresses batches, skips those of aborted
transactions, and returns Arrow batches.
"""

import contextlib
import logging
import struct
import time
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from millstream.client.errors import UnknownTopicError, from_code
from millstream.client.wire import requests
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.connection import Connection
from millstream.client.wire.requests import FetchReply
from millstream.protocol.checksum import crc32c
from millstream.protocol.compression import Compression, DecompressionError, decompress
from millstream.protocol.errors import ErrorCode
from millstream.protocol.record_batch import CRC_START, HEADER_SIZE, MAGIC, BatchHeader, read_header
from millstream.protocol.varint import INT64_BYTES, read_varint
from millstream.spark.columns import BadRecords, Bytes, Columns, OpenBatch, UnreadableBatch
from millstream.spark.errors import DataLoss, SourceError
from millstream.spark.ranges import OffsetRange

log = logging.getLogger("millstream.spark")

# Spark's advice for Arrow batches; larger ones gain nothing and hold more memory.
ROWS_PER_BATCH = 10_000
# Together with the largest batch this stays within Arrow's 32-bit offsets.
_BYTES_PER_BATCH = 64 * 1024 * 1024
_LARGEST_UNPACKED = 1 << 30
_SMALLEST_RECORD = 7
# Some brokers do not know leaders and new topics for a moment; a deleted topic stays unknown.
_GONE_AFTER_S = 5.0


class _TopicGone(SourceError):
    """The cluster has reported for a while that the partition does not exist."""


class RangeReader:
    """Reads a range once, from start to end."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: OffsetRange,
        *,
        include_headers: bool,
        fail_on_data_loss: bool,
        poll_timeout_s: float,
    ) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._range = wanted
        self._position = wanted.start
        self._fail_on_data_loss = fail_on_data_loss
        self._poll_timeout_s = poll_timeout_s
        self._columns = Columns(wanted.topic, wanted.partition, include_headers)
        self._fetch_bytes = self._settings.fetch_bytes
        self._saw_end = False
        self._unknown_since: float | None = None
        self._sent_from: int | None = None
        self._connection: Connection | None = None
        self._progress_at = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            while self._position < self._range.end:
                yield from self._next()
        finally:
            # A pending reply that is never read would be taken for the answer to a later request.
            if self._connection is not None and self._connection.expects_reply:
                self._cluster.close()

    def _next(self) -> Iterator[pa.RecordBatch]:
        try:
            reply, view = self._cluster.patiently(
                f"{self._range} cannot be read", self._fetch, self._poll_timeout_s
            )
        except _TopicGone:
            self._lost(self._range.end, "the partition does not exist any more")
            return
        if reply.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
            return
        if reply.log_start_offset > self._position:
            self._lost(reply.log_start_offset, "they were deleted")
            return
        at, size = reply.records
        chosen = list(self._whole_batches(view[at : at + size], reply))
        if not chosen:
            self._nothing_came(reply, size)
            return
        self._progress_at = time.monotonic()
        low, high = self._position, self._range.end
        last = chosen[-1][0]
        self._position = last.last_offset + 1
        if self._position < high:
            # If the connection is broken, the fetch that reads the reply notices it and connects again.
            with contextlib.suppress(OSError):
                self._send()
        group: list[OpenBatch] = []
        rows = size = 0
        for header, body in chosen:
            try:
                opened = self._opened(header, body)
            except UnreadableBatch as error:
                self._pass_over(error)
                continue
            group.append(opened)
            rows += header.record_count
            size += opened.end
            if rows >= ROWS_PER_BATCH or size >= _BYTES_PER_BATCH:
                yield from self._built(group, low, high)
                group, rows, size = [], 0, 0
        if rows:
            yield from self._built(group, low, high)

    def _built(self, group: list[OpenBatch], low: int, high: int) -> Iterator[pa.RecordBatch]:
        try:
            yield self._columns.build(group, low, high)
        except UnreadableBatch as error:
            if len(group) == 1:
                self._pass_over(error)
                return
            for each in group:
                yield from self._built([each], low, high)

    def _pass_over(self, error: UnreadableBatch) -> None:
        """Skip or report a batch with a valid checksum: the producer sent it like this, so another read cannot help."""
        if self._fail_on_data_loss:
            raise UnreadableBatch(f"{error}. Set failOnDataLoss to false to go on without it") from None
        log.warning("%s; going on without it as failOnDataLoss is false", error)

    def _send(self) -> None:
        assert self._connection is not None
        body = requests.fetch_request(
            self._range.topic,
            self._range.partition,
            self._position,
            max_bytes=self._fetch_bytes,
            max_wait_ms=self._settings.fetch_max_wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            isolation_level=self._settings.isolation_level,
        )
        self._connection.send(requests.FETCH, requests.FETCH_VERSION, body)
        self._sent_from = self._position

    def _fetch(self) -> tuple[FetchReply, memoryview]:
        """The reply to the fetch from the current position, which may have been sent already."""
        connection = self._leader()
        if connection is not self._connection or self._sent_from != self._position:
            if connection.expects_reply:
                # A request left by a task that ended within its range, or one that was sent only in part.
                self._cluster.close()
                connection = self._leader()
            self._connection = connection
            self._send()
        self._sent_from = None
        view = connection.receive()
        reply = requests.read_fetch(view)
        if reply.error and reply.error != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise from_code(f"a fetch of {self._range} at offset {self._position}", reply.error)
        return reply, view

    def _leader(self) -> Connection:
        try:
            connection = self._cluster.leader(self._range.topic, self._range.partition)
        except UnknownTopicError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
                self._unknown_since = self._unknown_since or time.monotonic()
                if time.monotonic() - self._unknown_since > _GONE_AFTER_S:
                    raise _TopicGone("the partition does not exist any more") from error
            raise
        self._unknown_since = None
        return connection

    def _whole_batches(
        self, records: memoryview, reply: FetchReply
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Headers and bodies of the batches with wanted records, without a truncated batch at the end."""
        aborted = AbortedTransactions(reply.aborted) if self._settings.read_committed else None
        position = 0
        while len(records) - position >= HEADER_SIZE:
            header = read_header(records, position)
            size = header.size_bytes
            if header.magic != MAGIC:
                raise SourceError(
                    f"{self._range}: message format v{header.magic} at offset {header.base_offset}; only v2, "
                    "written by Kafka 0.11 and later, can be read"
                )
            if size < HEADER_SIZE:
                raise BadRecords(
                    f"{self._range}: the batch at offset {header.base_offset} claims {size} bytes"
                )
            if header.base_offset >= self._range.end:
                self._saw_end = True
                return
            if position + size > len(records):
                return
            batch = records[position : position + size]
            position += size
            if header.last_offset < self._position:
                continue
            if self._settings.check_crcs and header.crc != crc32c(batch[CRC_START:]):
                raise BadRecords(
                    f"{self._range}: the batch at offset {header.base_offset} fails its checksum"
                )
            hidden = aborted is not None and aborted.hides(header, batch[HEADER_SIZE:])
            if hidden or header.is_control:
                # The batch gives no rows, but its offsets count as read.
                header = header._replace(record_count=0)
            yield header, batch[HEADER_SIZE:]

    def _opened(self, header: BatchHeader, body: memoryview) -> OpenBatch:
        if not header.record_count:
            return OpenBatch(header, np.empty(0, np.uint8), 0, 0)
        if header.codec == Compression.NONE:
            return self._counted(header, np.frombuffer(body, np.uint8))
        if header.codec > Compression.ZSTD:
            raise UnreadableBatch(
                f"{self._range}: compression codec {header.codec} at offset {header.base_offset} is unknown"
            )
        try:
            data = decompress(Compression(header.codec), body, _LARGEST_UNPACKED)
        except DecompressionError as error:
            raise UnreadableBatch(
                f"{self._range}: the batch at offset {header.base_offset} cannot be read: {error}"
            ) from None
        return self._counted(header, np.frombuffer(data, np.uint8))

    def _counted(self, header: BatchHeader, data: Bytes) -> OpenBatch:
        """Check that the bytes can hold as many records as the header claims, for which columns are allocated."""
        if not 0 < header.record_count * _SMALLEST_RECORD <= len(data):
            raise UnreadableBatch(
                f"{self._range}: the batch at offset {header.base_offset} cannot be read: it claims "
                f"{header.record_count} records in {len(data)} bytes"
            )
        return OpenBatch(header, data, 0, len(data))

    def _nothing_came(self, reply: FetchReply, size: int) -> None:
        """Handle a fetch without a usable batch: the batch is larger than a fetch, the log ends, or was compacted."""
        if self._saw_end:
            self._position = self._range.end
            return
        if size and self._fetch_bytes < _LARGEST_UNPACKED:
            self._fetch_bytes = min(2 * self._fetch_bytes, _LARGEST_UNPACKED)
            return
        if time.monotonic() - self._progress_at > self._poll_timeout_s:
            # A new leader that does not know the high watermark yet refuses to report the log's end here.
            latest = self._latest()
            end_of_log = reply.last_stable_offset if self._settings.read_committed else reply.high_watermark
            if latest == end_of_log:
                waited = f"did not grow for {self._poll_timeout_s:.0f} s"
                self._lost(self._range.end, f"the log ends at {latest} and {waited}")

    def _out_of_range(self) -> None:
        """Handle a position before the log's start (deleted records) or after its end (a recreated topic, an unclean
        election)."""
        place = self._range.topic, self._range.partition
        earliest = self._cluster.offsets({place: requests.EARLIEST})[place]
        if earliest > self._position:
            self._lost(earliest, "they were deleted")
        else:
            self._lost(self._range.end, f"the log ends at {self._latest()}")

    def _latest(self) -> int:
        place = self._range.topic, self._range.partition
        return self._cluster.offsets({place: requests.LATEST})[place]

    def _lost(self, go_on_at: int, why: str) -> None:
        self._sent_from = None
        go_on_at = min(go_on_at, self._range.end)
        place = f"{self._range.topic}-{self._range.partition}"
        lost = f"offsets {self._position} to {go_on_at - 1} of {place} are gone: {why}"
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{lost}. Set failOnDataLoss to false to go on without them, or start with a new checkpoint"
            )
        log.warning("%s; going on at %d as failOnDataLoss is false", lost, go_on_at)
        self._position = go_on_at
        self._progress_at = time.monotonic()


_ABORT = 0
_MARKER_KEY = struct.Struct(">hh")


class AbortedTransactions:
    """Recognises batches of aborted transactions, from the broker's list of producers and first offsets. Takes the
    batches of one fetch in order."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=lambda each: each[1])
        self._aborting: set[int] = set()

    def hides(self, header: BatchHeader, body: memoryview) -> bool:
        """Whether the batch belongs to an aborted transaction; its end marker does not."""
        while self._pending and self._pending[0][1] <= header.last_offset:
            self._aborting.add(self._pending.pop(0)[0])
        if header.is_control:
            # Later transactions of the same producer may be committed.
            if header.producer_id in self._aborting and marker_type(bytes(body)) == _ABORT:
                self._aborting.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._aborting


def marker_type(records: bytes) -> int:
    """0 for abort, 1 for commit: the second number in the key of a control batch's only record."""
    _, position = read_varint(records, 0)
    _, position = read_varint(records, position + 1, INT64_BYTES)
    _, position = read_varint(records, position)
    size, position = read_varint(records, position)
    _, kind = _MARKER_KEY.unpack_from(records[position : position + size])
    return int(kind)
