"""Idempotent producers of one partition: which sequence numbers have been written.

A producer numbers its records per partition. A batch must follow the last one without a gap; a
duplicate is answered with its first outcome and not written again. The last five batches of each producer are
remembered, as many as a client may have in flight. Snapshots use Kafka's .snapshot format, which keeps the last batch.

There may be a million producers, so each is one short byte string: its entry in a snapshot, the time of its last
batch, and the batches before that, the newest first. Producers are ordered by their last writes, the longest idle
first.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millstream.protocol.checksum import crc32c
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader

REMEMBERED_BATCHES = 5
SNAPSHOT_VERSION = 1
SNAPSHOT_HEAD = struct.Struct(">hIi")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
SNAPSHOT_CHECKED_FROM = 6
_TIMESTAMP = struct.Struct(">q")
_STATE_HEAD = struct.Struct(">qhiqiqiqq")
_OLDER_BATCH = struct.Struct(">iiqq")
_OLDER_AT = SNAPSHOT_ENTRY.size + _TIMESTAMP.size
_MOST_OLDER_BYTES = (REMEMBERED_BATCHES - 1) * _OLDER_BATCH.size
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


class ActiveProducer(NamedTuple):
    """A producer as reported to tools."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int


class _Entry(NamedTuple):
    """The decoded start of a producer's bytes. `last_sequence` is -1 when no batch of it is known."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    sequence_delta: int
    seen_ms: int
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1


def _entry_of(state: bytes) -> _Entry:
    return _Entry(*SNAPSHOT_ENTRY.unpack_from(state))


def _batches_of(state: bytes) -> Iterator[WrittenBatch]:
    """The newest first."""
    entry = _entry_of(state)
    if entry.last_sequence < 0:
        return
    first = (entry.last_sequence - entry.sequence_delta) % _SEQUENCE_SPAN
    (timestamp,) = _TIMESTAMP.unpack_from(state, SNAPSHOT_ENTRY.size)
    yield WrittenBatch(first, entry.last_sequence, entry.last_offset, timestamp)
    for older in _OLDER_BATCH.iter_unpack(state[_OLDER_AT:]):
        yield WrittenBatch(*older)


class RefusedBatch(NamedTuple):
    """A batch that was refused for a temporary reason; its producer will retry."""

    epoch: int
    base_sequence: int
    code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
    message: str = ""

    def comes_before(self, header: BatchHeader) -> bool:
        ahead = (header.base_sequence - self.base_sequence) % _SEQUENCE_SPAN
        return header.producer_epoch == self.epoch and 0 < ahead < _SEQUENCE_SPAN // 2


class ProducerStates:
    __slots__ = ("_producers", "_refused", "unread_end")

    def __init__(self) -> None:
        self.unread_end = 0
        """Some batches before this offset could not be read when the state was rebuilt."""
        self._producers: dict[int, bytes] = {}
        self._refused: dict[int, RefusedBatch] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """None when the batch may be appended, its earlier outcome when it is a duplicate, else KafkaError."""
        if self._refused:
            refused = self._refused.get(header.producer_id)
            if refused is not None and refused.comes_before(header):
                raise KafkaError(refused.code, refused.message)
        state = self._producers.get(header.producer_id)
        if state is None:
            # Nothing is known of this producer: it is new here, or its records have been deleted.
            return None
        entry = _entry_of(state)
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
        if entry.last_sequence < 0:
            return None
        expected = (entry.last_sequence + 1) % _SEQUENCE_SPAN
        if first == expected:
            return None
        for written in _batches_of(state):
            if written.first_sequence == first and written.last_sequence == last:
                return written
        behind = (expected - first) % _SEQUENCE_SPAN
        if 0 < behind < _SEQUENCE_SPAN // 2 and (expected - last - 1) % _SEQUENCE_SPAN < _SEQUENCE_SPAN // 2:
            raise KafkaError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {header.producer_id} wrote sequence {first} before, its offset is no longer remembered",
            )
        raise self._out_of_order(header, expected)

    def refuse(self, header: BatchHeader, error: KafkaError) -> None:
        """Remember a batch that was refused for a temporary reason.

        Later batches that the producer has already sent are refused for the same reason: they must not overtake it,
        and the error for a gap would make some clients begin a new epoch and resend records that are in the log. A
        retried batch that is already in the log leaves no gap, so nothing behind it has to wait.
        """
        if header.producer_id < 0 or self.has(header):
            return
        known = self._refused.get(header.producer_id)
        if known is None or not known.comes_before(header):
            self._refused.pop(header.producer_id, None)
            if len(self._refused) >= _MOST_REFUSED:
                del self._refused[next(iter(self._refused))]
            self._refused[header.producer_id] = RefusedBatch(
                header.producer_epoch, header.base_sequence, error.code, error.message
            )

    def has(self, header: BatchHeader) -> bool:
        """Whether the batch is a duplicate of one in the log."""
        state = self._producers.get(header.producer_id)
        if state is None:
            return False
        entry = _entry_of(state)
        if entry.epoch != header.producer_epoch or entry.last_sequence < 0:
            return False
        behind = (entry.last_sequence + 1 - header.base_sequence) % _SEQUENCE_SPAN
        return 0 < behind < _SEQUENCE_SPAN // 2

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        if self._refused:
            self._refused.pop(header.producer_id, None)
        last = header.last_sequence
        entry = SNAPSHOT_ENTRY.pack(
            header.producer_id,
            header.producer_epoch,
            last,
            base_offset + header.last_offset_delta,
            (last - header.base_sequence) % _SEQUENCE_SPAN,
            now_ms,
            -1,
            -1,
        )
        # Removed first, so that the latest writer becomes the last in the dictionary.
        before = self._producers.pop(header.producer_id, None)
        older = b""
        if before is not None:
            _, epoch, sequence, offset, delta, _, _, _, timestamp = _STATE_HEAD.unpack_from(before)
            if epoch == header.producer_epoch and sequence >= 0:
                first = (sequence - delta) % _SEQUENCE_SPAN
                older = _OLDER_BATCH.pack(first, sequence, offset, timestamp) + before[_OLDER_AT:]
        self._producers[header.producer_id] = (
            entry + _TIMESTAMP.pack(header.max_timestamp) + older[:_MOST_OLDER_BYTES]
        )

    def may_lack(self, header: BatchHeader) -> bool:
        """Whether the batch may be the retry of one that could not be read: its producer wrote nothing behind those."""
        if not self.unread_end:
            return False
        state = self._producers.get(header.producer_id)
        return state is None or (_entry_of(state).last_offset < self.unread_end and not self.has(header))

    def learn(self, found: "ProducerStates") -> None:
        """Take over what `found` knows of later batches: they were in the log, and could not be read."""
        for producer_id, state in found._producers.items():  # noqa: SLF001 - of the same class
            known = self._producers.get(producer_id)
            if known is None or _entry_of(known).last_offset < _entry_of(state).last_offset:
                self._producers.pop(producer_id, None)
                self._producers[producer_id] = state

    def last_offsets(self) -> dict[int, int]:
        """The last offset each producer wrote: compaction keeps that batch, for its sequence number."""
        entries = map(_entry_of, self._producers.values())
        return {each.producer_id: each.last_offset for each in entries if each.last_sequence >= 0}

    def active(self) -> list[ActiveProducer]:
        """The longest idle first."""
        heads = map(_STATE_HEAD.unpack_from, self._producers.values())
        return [ActiveProducer(head[0], head[1], head[2], head[-1]) for head in heads]

    def expire(self, now_ms: int, idle_ms: int) -> int:
        """Forget producers idle for `idle_ms`; returns how many."""
        count = 0
        while self.forget_longest_idle(now_ms, idle_ms):
            count += 1
        return count

    def forget_longest_idle(self, now_ms: int, idle_ms: int) -> bool:
        """Forget one producer that was idle for `idle_ms`; False if there is none."""
        producers = self._producers
        while producers:
            producer_id = next(iter(producers))
            entry = _entry_of(producers[producer_id])
            if entry.seen_ms <= now_ms:
                if entry.seen_ms >= now_ms - idle_ms:
                    return False
                del producers[producer_id]
                return True
            # The clock was set back: count its idle time from now.
            state = producers.pop(producer_id)
            now = SNAPSHOT_ENTRY.pack(*entry._replace(seen_ms=now_ms))
            producers[producer_id] = now + state[SNAPSHOT_ENTRY.size :]
        return False

    def clear(self) -> None:
        self._producers.clear()
        self._refused.clear()

    def encode(self) -> bytes:
        entries = (state[: SNAPSHOT_ENTRY.size] for state in self._producers.values())
        body = b"".join((struct.pack(">i", len(self._producers)), *entries))
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> "ProducerStates | None":
        """None when the snapshot is torn or of another version; the caller rebuilds from the log then."""
        if len(data) < SNAPSHOT_HEAD.size:
            return None
        version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION or crc != crc32c(data[SNAPSHOT_CHECKED_FROM:]):
            return None
        states = cls()
        for number in range(count):
            at = SNAPSHOT_HEAD.size + number * SNAPSHOT_ENTRY.size
            entry = bytes(data[at : at + SNAPSHOT_ENTRY.size])
            known = _entry_of(entry)
            states._producers[known.producer_id] = entry + _TIMESTAMP.pack(known.seen_ms)
        return states

    @staticmethod
    def _out_of_order(header: BatchHeader, expected: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} was expected",
        )
