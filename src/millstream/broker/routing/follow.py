"""One reader of a partition's log for any number of followers.

The reader keeps its last reads. A follower at the end waits for the reader and shares its reads; a follower that is
further behind reads the log itself until it has caught up. So a follower costs a position and no memory.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

from msgspec.structs import replace

from millstream.doors.access import Authoriser, Operation, Permission, Resource
from millstream.doors.caller import NODE, Caller
from millstream.doors.partitions import Isolation, LogRead, Place
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError

log = get_logger("millstream.doors")

# Bytes kept by all readers together, and the least that one may keep.
_KEPT_BYTES = 64 << 20
_LEAST_KEPT_BYTES = 256 << 10
_READ_BYTES = 1 << 20
_WAIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.5
_PASSING = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.BROKER_NOT_AVAILABLE)


_What = tuple[Place, Isolation, bytes]
"""A partition, its isolation level, and its topic's id: a new topic of the same name gets another reader."""


class _Log(Protocol):
    async def read(
        self,
        caller: Caller,
        place: Place,
        offset: int,
        *,
        max_bytes: int = ...,
        max_wait_s: float = ...,
        isolation: Isolation = ...,
        topic_id: bytes | None = ...,
    ) -> LogRead: ...

    def identity(self, place: Place) -> bytes: ...


class _Reader:
    """Reads the end of one partition as long as it has followers."""

    def __init__(self, follows: "Follows", what: "_What") -> None:
        self._place = what[0]
        self._what = what
        self._follows = follows
        self._kept: deque[LogRead] = deque()
        self._kept_bytes = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.followers = 0
        self.end: int | None = None
        """The next offset; None while the reader is stopped."""

    def begin(self, offset: int) -> None:
        """Start reading at the offset where a follower has reached the end of the log."""
        if self._task is None:
            self.end = offset
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"follow {self._place}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._forget()

    def find(self, offset: int) -> LogRead | None:
        """The kept read that has the offset, cut to start there; None if there is none."""
        # From the end, where nearly all followers are.
        for read in reversed(self._kept):
            if read.next_offset <= offset:
                return None
            if read.offset <= offset:
                return read if read.offset == offset else replace(read, offset=offset)
        return None

    async def more(self) -> None:
        """Returns when the reader has read something, or has ended."""
        await self._changed.wait()

    async def _run(self) -> None:
        try:
            while self.end is not None:
                read = await self._follows.read(NODE, self._what, self.end, _WAIT_SECONDS)
                if read.next_offset > self.end:
                    self._keep(read)
        except KafkaError as error:
            # Followers now read for themselves, and get the error if it concerns them.
            log.info("reader ended", place=str(self._place), error=error.message)
        finally:
            self._task = None
            self._forget()

    def _keep(self, read: LogRead) -> None:
        self.end = read.next_offset
        self._kept.append(read)
        self._kept_bytes += len(read.batches)
        most = self._follows.share_bytes
        while self._kept_bytes > most and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popleft().batches)
        self._tell()

    def _forget(self) -> None:
        self.end = None
        self._kept.clear()
        self._kept_bytes = 0
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Follows:
    def __init__(self, partitions: _Log, authoriser: Authoriser) -> None:
        self._partitions = partitions
        self._authoriser = authoriser
        self._readers: dict[_What, _Reader] = {}

    @property
    def share_bytes(self) -> int:
        """Bytes that one reader may keep; the last read is always kept."""
        return max(_KEPT_BYTES // max(len(self._readers), 1), _LEAST_KEPT_BYTES)

    def close(self) -> None:
        for reader in list(self._readers.values()):
            reader.stop()

    async def follow(
        self, caller: Caller, place: Place, offset: int, isolation: Isolation
    ) -> AsyncIterator[LogRead]:
        needed = Permission(Operation.READ, Resource.TOPIC, place.topic)
        self._authoriser.check(caller, needed)
        what = place, isolation, self._partitions.identity(place)
        reader = self._readers.get(what)
        if reader is None:
            reader = self._readers[what] = _Reader(self, what)
        reader.followers += 1
        try:
            while True:
                read = reader.find(offset)
                if read is None and reader.end == offset:
                    await reader.more()
                    continue
                if read is None:
                    # Behind the reader there are records, unless a new leader has fewer for now.
                    wait_s = 0.0 if reader.end is None else _PAUSE_SECONDS
                    read = await self.read(caller, what, offset, wait_s)
                    if read.next_offset == offset:
                        reader.begin(offset)
                        continue
                # Permissions may have changed while the follower waited.
                self._authoriser.check(caller, needed)
                offset = read.next_offset
                yield read
        finally:
            reader.followers -= 1
            if not reader.followers:
                reader.stop()
                self._readers.pop(what, None)

    async def read(self, caller: Caller, what: "_What", offset: int, wait_s: float) -> LogRead:
        """Tries again without a time limit while there is no leader."""
        place, isolation, topic_id = what
        while True:
            try:
                return await self._partitions.read(
                    caller,
                    place,
                    offset,
                    max_bytes=_READ_BYTES,
                    max_wait_s=wait_s,
                    isolation=isolation,
                    topic_id=topic_id,
                )
            except KafkaError as error:
                if error.code not in _PASSING:
                    raise
