"""Idempotent producers of one partition: which sequence numbers have been written.

A producer numbers its records per partition. A batch must follow the last one without a gap; one that was written
before is answered with its first outcome instead of being written twice. The last five batches of each producer are
remembered, as many as a client may have in flight. Snapshots use Kafka's .snapshot format, which keeps the last batch.
"""

import struct
from collections import deque
from typing import NamedTuple

from crc32c import crc32c

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader

REMEMBERED_BATCHES = 5
SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SEQUENCE_SPAN = 2**31
_MOST_REFUSED = 10_000


class WrittenBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - (self.last_sequence - self.first_sequence) % _SEQUENCE_SPAN


class ProducerEntry:
    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self.seen_ms = seen_ms


class _Refused(NamedTuple):
    """A batch that was refused for a reason that passes, and that its producer will send again."""

    epoch: int
    base_sequence: int
    code: ErrorCode
    message: str

    def comes_before(self, header: BatchHeader) -> bool:
        ahead = (header.base_sequence - self.base_sequence) % _SEQUENCE_SPAN
        return header.producer_epoch == self.epoch and 0 < ahead < _SEQUENCE_SPAN // 2


class ProducerStates:
    __slots__ = ("_producers", "_refused")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._refused: dict[int, _Refused] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """None when the batch may be appended, its earlier outcome when it is a duplicate, else KafkaError."""
        if self._refused:
            refused = self._refused.get(header.producer_id)
            if refused is not None and refused.comes_before(header):
                raise KafkaError(refused.code, refused.message)
        entry = self._producers.get(header.producer_id)
        if entry is None:
            # Nothing is known of this producer: it is new here, or its records have been deleted.
            return None
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch is of epoch {header.producer_epoch}",
            )
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0:
                raise self._out_of_order(header, 0)
            return None
        first, last = header.base_sequence, header.last_sequence
        for written in entry.batches:
            if written.first_sequence == first and written.last_sequence == last:
                return written
        if not entry.batches:
            return None
        expected = (entry.batches[-1].last_sequence + 1) % _SEQUENCE_SPAN
        if first == expected:
            return None
        behind = (expected - first) % _SEQUENCE_SPAN
        if 0 < behind < _SEQUENCE_SPAN // 2 and (expected - last - 1) % _SEQUENCE_SPAN < _SEQUENCE_SPAN // 2:
            raise KafkaError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {header.producer_id} wrote sequence {first} before, its offset is no longer remembered",
            )
        raise self._out_of_order(header, expected)

    def refuse(self, header: BatchHeader, error: KafkaError) -> None:
        """Not appended, because of something that passes.

        What this producer has already sent behind it is refused for the same reason. It must not come first, and a gap
        in the sequence would make some clients begin a new epoch and send again what is in the log without their
        knowledge. One that is in the log, and was sent again, leaves no gap: nothing behind it need wait.
        """
        if header.producer_id < 0 or self._has(header):
            return
        known = self._refused.get(header.producer_id)
        if known is None or not known.comes_before(header):
            self._refused.pop(header.producer_id, None)
            if len(self._refused) >= _MOST_REFUSED:
                del self._refused[next(iter(self._refused))]
            self._refused[header.producer_id] = _Refused(
                header.producer_epoch, header.base_sequence, error.code, error.message
            )

    def _has(self, header: BatchHeader) -> bool:
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch or not entry.batches:
            return False
        behind = (entry.batches[-1].last_sequence + 1 - header.base_sequence) % _SEQUENCE_SPAN
        return 0 < behind < _SEQUENCE_SPAN // 2

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        if self._refused:
            self._refused.pop(header.producer_id, None)
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        entry.seen_ms = now_ms
        entry.batches.append(
            WrittenBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )

    def last_offsets(self) -> dict[int, int]:
        """The last offset each producer wrote: compaction keeps that batch, for its sequence number."""
        return {pid: entry.batches[-1].last_offset for pid, entry in self._producers.items() if entry.batches}

    def expire(self, before_ms: int) -> None:
        """Forget producers that have written nothing since `before_ms`."""
        for producer_id in [pid for pid, entry in self._producers.items() if entry.seen_ms < before_ms]:
            del self._producers[producer_id]

    def clear(self) -> None:
        self._producers.clear()
        self._refused.clear()

    def encode(self) -> bytes:
        body = bytearray(struct.pack(">i", len(self._producers)))
        for producer_id, entry in self._producers.items():
            last = entry.batches[-1] if entry.batches else WrittenBatch(-1, -1, -1, -1)
            delta = (last.last_sequence - last.first_sequence) % _SEQUENCE_SPAN
            body += _SNAPSHOT_ENTRY.pack(
                producer_id, entry.epoch, last.last_sequence, last.last_offset, delta, entry.seen_ms, -1, -1
            )
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + bytes(body)

    @classmethod
    def decode(cls, data: bytes) -> "ProducerStates | None":
        """None when the snapshot is torn or of another version; the caller rebuilds from the log then."""
        if len(data) < _SNAPSHOT_HEAD.size:
            return None
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION or crc != crc32c(data[6:]):
            return None
        states = cls()
        for number in range(count):
            at = _SNAPSHOT_HEAD.size + number * _SNAPSHOT_ENTRY.size
            producer_id, epoch, sequence, offset, delta, seen_ms, _, _ = _SNAPSHOT_ENTRY.unpack_from(data, at)
            entry = states._producers[producer_id] = ProducerEntry(epoch, seen_ms)
            if sequence >= 0:
                first = (sequence - delta) % _SEQUENCE_SPAN
                entry.batches.append(WrittenBatch(first, sequence, offset, seen_ms))
        return states

    @staticmethod
    def _out_of_order(header: BatchHeader, expected: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} was expected",
        )
