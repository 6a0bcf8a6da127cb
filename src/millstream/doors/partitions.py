"""Append to a partition and read it, wherever it is led."""

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from millstream.doors.caller import Caller
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader, read_header
from millstream.protocol.records import (
    Record,
    TooLargeUnpacked,
    check_record_count,
    decode_records,
    iter_records,
)

# What is opened of one batch, which any client may have packed.
_UNPACKED_BYTES = 64 << 20
_OPENED_RECORDS = 500_000
_OPENED_HEADERS = 1_000_000
# What is opened between two turns of the loop; our own doors' batches have no more headers.
_LIGHT_BYTES = 8 << 20
_LIGHT_RECORDS = 20_000
_LIGHT_HEADERS = 120_000
# What is opened there of each of many batches, with work to do for each record.
_SMALL_BYTES = 1 << 20
_SMALL_RECORDS = 2_000
_PIECE_BYTES = 16 << 10


class Place(msgspec.Struct, frozen=True, order=True):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Acks(enum.IntEnum):
    """When an append is answered."""

    NONE = 0
    """At once; the caller does not hear what becomes of it."""
    LEADER = 1
    """When the leader has stored it as durably as the topic asks for."""
    ALL = -1
    """When all replicas in sync have stored it so."""


class Durability(enum.Enum):
    """How durable an append was when it was answered."""

    MEMORY = "memory"
    DISK = "disk"
    REPLICATED = "replicated"
    REPLICATED_ON_DISK = "replicated and on disk"


class Isolation(enum.IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Appended(msgspec.Struct, frozen=True):
    base_offset: int
    """Of the first record; the others follow it without a gap. -1 with `Acks.NONE`."""
    timestamp_ms: int
    """What the log stamped the records with; -1 where each keeps its own."""
    durability: Durability
    log_start_offset: int = -1


class Offsets(msgspec.Struct, frozen=True):
    earliest: int
    latest: int
    """The high watermark: the offset of the next record that a reader will see."""
    last_stable: int


class OffsetAt(msgspec.Struct, frozen=True):
    """The first record that is not older than what was asked for."""

    offset: int
    timestamp_ms: int


PassOver = Callable[[BatchHeader, KafkaError], None]
"""Is told of a batch that cannot be opened."""
Opened = Mapping[int, list[Record] | KafkaError]
"""Batches that were opened in a thread, or why they cannot be, by their first offsets."""
_NOTHING: Opened = {}


def open_batch(header: BatchHeader, batch: memoryview) -> list[Record]:
    """KafkaError of one that cannot be opened, or is too much of something."""
    check_record_count(header, _OPENED_RECORDS)
    return decode_records(batch, _UNPACKED_BYTES, _LIGHT_HEADERS if _is_light(header) else _OPENED_HEADERS)


def iter_batch(header: BatchHeader, batch: memoryview) -> Iterator[Record]:
    """As `open_batch`, with a short piece in memory at a time: for a thread."""
    check_record_count(header, _OPENED_RECORDS)
    return iter_records(batch, _UNPACKED_BYTES, _PIECE_BYTES, _OPENED_HEADERS)


def open_small_batch(header: BatchHeader, batch: memoryview) -> list[Record] | None:
    """None where it is, or unpacks to, more than is opened between two turns of the loop."""
    if header.record_count > _SMALL_RECORDS:
        return None
    try:
        return decode_records(batch, _SMALL_BYTES, _LIGHT_HEADERS)
    except TooLargeUnpacked:
        return None


def _is_light(header: BatchHeader) -> bool:
    """What is packed may be anything."""
    return not header.codec and header.size_bytes <= _LIGHT_BYTES and header.record_count <= _LIGHT_RECORDS


def opened_or_error(header: BatchHeader, batch: memoryview, opened: Opened) -> list[Record] | KafkaError:
    found = opened.get(header.base_offset)
    if found is not None:
        return found
    try:
        return open_batch(header, batch)
    except KafkaError as error:
        return error.as_value()


async def open_in_thread(batches: Iterable[tuple[BatchHeader, memoryview]]) -> Opened:
    """Those that take long: `records` takes the others as it comes to them."""
    heavy = [(header, batch) for header, batch in batches if not _is_light(header) and not header.is_control]
    return await asyncio.to_thread(_open_all, heavy) if heavy else {}


def _open_all(batches: Iterable[tuple[BatchHeader, memoryview]]) -> Opened:
    opened: dict[int, list[Record] | KafkaError] = {}
    for header, batch in batches:
        try:
            opened[header.base_offset] = open_batch(header, batch)
        except KafkaError as error:
            opened[header.base_offset] = error.as_value()
    return opened


class LogRead(msgspec.Struct, frozen=True):
    """Whole record batches as they are stored. Followers of one partition share it."""

    place: Place
    offset: int
    """What was asked for; the first batch may begin before it."""
    next_offset: int
    """Where to read on; equal to `offset` when there was nothing."""
    batches: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    def headers(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Each batch with its header."""
        at = 0
        while at < len(self.batches):
            header = read_header(self.batches, at)
            yield header, self.batches[at : at + header.size_bytes]
            at += header.size_bytes

    async def open(self) -> Opened:
        """For `records`, on the event loop."""
        return await open_in_thread(self.headers())

    def records(self, opened: Opened = _NOTHING, pass_over: PassOver | None = None) -> Iterator[Record]:
        """The records from `offset` on, without control records.

        Producers pack batches, and nobody looks into them on their way to the log. One that cannot be opened is a
        KafkaError, or with `pass_over` told to that, and the next one follows.
        """
        for header, batch in self.headers():
            if header.is_control:
                continue
            records = opened_or_error(header, batch, opened)
            if isinstance(records, KafkaError):
                if pass_over is None:
                    raise records
                pass_over(header, records)
                continue
            for record in records:
                if record.offset >= self.offset:
                    yield record


class PartitionAccess(Protocol):
    """Here, where this node leads the partition, or at its leader.

    Changes of leaders are waited for within the time given. What cannot be done is a `KafkaError`:
    UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, LEADER_NOT_AVAILABLE when no leader was found in time,
    REQUEST_TIMED_OUT when an append may have been written or not, OFFSET_OUT_OF_RANGE.
    """

    async def append(
        self,
        caller: Caller,
        place: Place,
        batch: bytes | bytearray | memoryview,
        *,
        acks: Acks = Acks.ALL,
        timeout_s: float = 30.0,
        patience_s: float | None = None,
    ) -> Appended:
        """One record batch. It is sent a second time only where it carries a producer's sequence number.

        One that was refused, and is not in the log, is sent again for `patience_s`; None is `timeout_s`.
        """
        ...

    async def read(
        self,
        caller: Caller,
        place: Place,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_s: float = 0.0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> LogRead:
        """Records from `offset` on, at least one batch if there is any; else waits `max_wait_s` for some."""
        ...

    async def offsets(self, caller: Caller, place: Place) -> Offsets: ...

    async def offset_at(self, caller: Caller, place: Place, timestamp_ms: int) -> OffsetAt | None:
        """None when all records are older."""
        ...

    def follow(
        self, caller: Caller, place: Place, offset: int, *, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> AsyncIterator[LogRead]:
        """Everything from `offset` on, for ever: close the iterator (`aclosing`) to end it.

        Any number of followers of a partition share one reader. One that is slower than the others reads for itself
        until it has caught up. Ends with a `KafkaError` where reading cannot go on: OFFSET_OUT_OF_RANGE when the log
        no longer has the offset, UNKNOWN_TOPIC_OR_PARTITION when the topic was deleted.
        """
        ...


def unknown_place(place: Place) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {place}")
