"""Appending to partitions and reading them, wherever they are led."""

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

# Limits for opening one batch, which any client may have compressed.
_UNPACKED_BYTES = 64 << 20
_OPENED_RECORDS = 500_000
_OPENED_HEADERS = 1_000_000
# Smaller batches are opened on the loop; batches of our own doors have no more headers.
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
    """When an append is acknowledged."""

    NONE = 0
    """At once; the caller does not learn the outcome."""
    LEADER = 1
    """When the leader has stored it as durably as the topic requires."""
    ALL = -1
    """When all in-sync replicas have stored it so."""


class Durability(enum.Enum):
    """How durable an append was when it was acknowledged."""

    MEMORY = "memory"
    DISK = "disk"
    REPLICATED = "replicated"
    REPLICATED_ON_DISK = "replicated and on disk"


class Isolation(enum.IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Appended(msgspec.Struct, frozen=True):
    base_offset: int
    """The offset of the first record; the others follow without gaps. -1 with `Acks.NONE`."""
    timestamp_ms: int
    """The timestamp that the log gave the records; -1 if each keeps its own."""
    durability: Durability
    log_start_offset: int = -1


class Offsets(msgspec.Struct, frozen=True):
    earliest: int
    latest: int
    """The high watermark: the offset of the next record that a reader will see."""
    last_stable: int


class OffsetAt(msgspec.Struct, frozen=True):
    """The first record that is not older than the requested time."""

    offset: int
    timestamp_ms: int


PassOver = Callable[[BatchHeader, KafkaError], None]
"""Called with a batch that cannot be opened."""
Opened = Mapping[int, list[Record] | KafkaError]
"""Batches that were opened in a thread, or their errors, by base offset."""
_NOTHING: Opened = {}


def open_batch(header: BatchHeader, batch: memoryview) -> list[Record]:
    """KafkaError if the batch cannot be opened or exceeds a limit."""
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
    """Compressed batches count as heavy: their contents may be anything."""
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
    """Opens heavy batches; `records` opens the others when it reaches them."""
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
    """Whole record batches as stored. Followers of one partition share a read."""

    place: Place
    offset: int
    """The requested offset; the first batch may begin before it."""
    next_offset: int
    """Where to read on; equal to `offset` if there was nothing."""
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
        """Opens heavy batches for `records`, from the event loop."""
        return await open_in_thread(self.headers())

    def records(self, opened: Opened = _NOTHING, pass_over: PassOver | None = None) -> Iterator[Record]:
        """The records from `offset` on, without control records.

        Producers compress batches, and nobody opens them on their way to the log. A batch that cannot be opened raises
        a KafkaError, or is passed to `pass_over` and skipped.
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
    """Works on this node if it leads the partition, else at the leader.

    Waits within the timeout while the leader changes. Failures are `KafkaError`s: UNKNOWN_TOPIC_OR_PARTITION,
    TOPIC_AUTHORIZATION_FAILED, LEADER_NOT_AVAILABLE if no leader was found in time, REQUEST_TIMED_OUT if an append may
    or may not have been written, OFFSET_OUT_OF_RANGE.
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
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Appended:
        """Append one record batch. It is retried after a lost answer only if it has a producer's sequence number.

        A batch that was refused and is not in the log is retried for `patience_s`, by default `timeout_s`. No batch is
        retried that is not wanted any more.
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
        """Records from `offset` on, at least one batch if there is any; else waits `max_wait_s` for one."""
        ...

    async def offsets(self, caller: Caller, place: Place) -> Offsets: ...

    async def offset_at(self, caller: Caller, place: Place, timestamp_ms: int) -> OffsetAt | None:
        """None if all records are older."""
        ...

    def follow(
        self, caller: Caller, place: Place, offset: int, *, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> AsyncIterator[LogRead]:
        """Everything from `offset` on, without end: close the iterator (`aclosing`) to stop.

        All followers of a partition share one reader. A follower that is slower than the others reads by itself until
        it has caught up. Ends with a `KafkaError` if reading cannot go on: OFFSET_OUT_OF_RANGE if the log no longer has
        the offset, UNKNOWN_TOPIC_OR_PARTITION if the topic was deleted.
        """
        ...


def unknown_place(place: Place) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {place}")
