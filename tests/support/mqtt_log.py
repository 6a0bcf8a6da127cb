"""What doors see of a log and its queues, in memory."""

import asyncio

from millstream.doors.partitions import LogRead, Offsets
from millstream.doors.queues import Acquired, AcquiredRange, Settled
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import read_header
from millstream.protocol.records import Record, encode_batch, seal_packed


class Log:
    """Partitions by their places; each message is a batch."""

    def __init__(self):
        self._batches = {}
        self._more = asyncio.Event()

    def end(self, place):
        return len(self._batches.get(place, ()))

    def add(self, place, value, topic="t", headers=()):
        end = self.end(place)
        self._add(place, encode_batch([Record(end, 0, topic.encode(), value, headers)], base_offset=end))

    def add_unreadable(self, place):
        """Its checksum is right, and what was packed is no record."""
        whole = encode_batch([Record(self.end(place), 0, None, b"")], base_offset=self.end(place))
        self._add(place, seal_packed(read_header(whole), b"\xff"))

    def make_again(self, place):
        """The topic is deleted, and made again with nothing in it."""
        self._batches.pop(place, None)

    def _add(self, place, batch):
        self._batches.setdefault(place, []).append(bytes(batch))
        more, self._more = self._more, asyncio.Event()
        more.set()

    async def offsets(self, _caller, place):
        await asyncio.sleep(0.01)
        return Offsets(0, self.end(place), self.end(place))

    async def read(self, _caller, place, offset, **_limits):
        await asyncio.sleep(0.01)
        return self._read(place, offset)

    def _read(self, place, offset):
        end = max(self.end(place), offset)
        batches = b"".join(self._batches.get(place, ())[offset:])
        return LogRead(place, offset, end, memoryview(batches), end, end, 0)

    async def follow(self, _caller, place, offset):
        while True:
            while self.end(place) <= offset:
                await self._more.wait()
            read = self._read(place, offset)
            offset = read.next_offset
            yield read


class Messages:
    """Takes what is sent after a while; `sent` is in the order in which it was handed over."""

    def __init__(self):
        self.sent = []
        self.refuses = {}
        """Topics with why."""
        self.without_leader = set()
        """Topics; what is sent to them waits."""
        self.given_up = []

    async def send(self, _caller, place, messages, *, acks=None, **_limits):
        self.sent += [(place.topic, each.value, acks) for each in messages]
        await asyncio.sleep(0.01)
        try:
            while place.topic in self.without_leader:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            self.given_up += [(place.topic, each.value) for each in messages]
            raise
        if place.topic in self.refuses:
            raise KafkaError(self.refuses[place.topic], "it is not taken")


class Queues:
    """Gives what the log has to whoever asks first."""

    def __init__(self, log):
        self._log = log
        self._next = {}
        self.is_away = False
        self.settled = []
        self.released = []

    async def acquire(self, _caller, group, _member, place, *, max_wait_s, **_limits):
        await asyncio.sleep(0.01)
        if self.is_away:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "there is no leader at the moment")
        waits = max_wait_s
        while (first := self._next.get((group, place), 0)) >= self._log.end(place) and waits > 0:
            waits -= 0.1
            await asyncio.sleep(0.1)
        read = await self._log.read(None, place, first)
        self._next[group, place] = read.next_offset
        ranges = (AcquiredRange(first, read.next_offset - 1, 1),) if read.next_offset > first else ()
        return Acquired(read, ranges, 30_000, 30_000)

    async def settle(self, _caller, group, member, place, settlements):
        await asyncio.sleep(0.01)
        self.settled += [(group, member, place, each.first_offset, each.kind) for each in settlements]
        return [Settled() for _ in settlements]

    async def release_all(self, _caller, group, member):
        self.released.append((group, member))
