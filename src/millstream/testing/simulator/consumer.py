"""A consumer that reads one partition from its beginning, at the leader."""

import asyncio
from collections.abc import Iterator

from millstream.client.wire import requests as reading
from millstream.protocol.errors import ErrorCode
from millstream.protocol.record_batch import HEADER_SIZE, read_header
from millstream.protocol.records import Record, decode_records
from millstream.testing.history import History, Poll, Seen
from millstream.testing.simulator.client import Address, NoAnswer, SimulatedClient

_RETRY_SECONDS = 0.3
_WAIT_MS = 1500
_FETCH_SECONDS = 3.0
_MAX_BYTES = 1 << 20


class SimulatedConsumer:
    def __init__(
        self,
        client: SimulatedClient,
        topic: str,
        partition: int,
        history: History,
        *,
        is_final: bool = False,
        process: str | None = None,
        topic_id: bytes | None = None,
        key: str | None = None,
    ) -> None:
        """`process` is its name in the history if not the client's, and `key` the partition's name there.

        With `topic_id`, requests name the topic by id, and a consumer whose position was deleted continues at the start
        of the log.
        """
        self.position = 0
        self.high_watermark = -1
        self.log_start = -1
        self.client = client
        self._topic = topic
        self._partition = partition
        self._topic_id = topic_id
        self.key = key or f"{topic}-{partition}"
        self._history = history
        self._is_final = is_final
        self._process = process or client.name
        self._is_fresh = True
        self._read_to = 0

    async def read_to_end(self) -> None:
        while self.high_watermark < 0 or self.position < self.high_watermark:
            await self.poll(wait_ms=0)

    async def poll(self, wait_ms: int = _WAIT_MS) -> int:
        """Fetch once and return the number of records; 0 after an error of the cluster."""
        client = self.client
        start = client.loop.time()
        try:
            address = await client.leader_of(self._topic, self._partition)
            if address is None:
                raise NoAnswer("no leader")
            reply, found = await self._fetch(address, wait_ms)
            if found.error == ErrorCode.OFFSET_OUT_OF_RANGE and self._topic_id is not None:
                self.position = max(self.position, await self._earliest(address))
        except NoAnswer:
            return await self._try_again()
        if found.error:
            # Also for an offset out of range, which a deposed leader may answer. The last phase would find a loss.
            return await self._try_again()
        self.high_watermark, self.log_start = found.high_watermark, found.log_start_offset
        at, size = found.records
        seen = tuple(self._seen(reply[at : at + size]))
        if seen:
            self._history.polls.append(
                Poll(self._process, seen, start, client.loop.time(), self._is_fresh, self._is_final)
            )
            self._is_fresh = False
        # Not one past the last record: compaction leaves empty batches.
        self.position = max(self.position, self._read_to)
        return len(seen)

    async def _fetch(self, address: Address, wait_ms: int) -> tuple[memoryview, reading.FetchReply]:
        ask, position = self.client.ask, self.position
        if self._topic_id is not None:
            body = reading.fetch_request(
                self._topic_id, self._partition, position, max_bytes=_MAX_BYTES, max_wait_ms=wait_ms
            )
            version = reading.FETCH_BY_ID_VERSION
            # The header of a flexible request, and of its reply, ends with tags.
            reply = (await ask(address, reading.FETCH, version, b"\0" + body, _FETCH_SECONDS))[1:]
            return reply, reading.read_fetch(reply, by_id=True)
        body = reading.fetch_request(
            self._topic, self._partition, position, max_bytes=_MAX_BYTES, max_wait_ms=wait_ms
        )
        reply = await ask(address, reading.FETCH, reading.FETCH_VERSION, body, _FETCH_SECONDS)
        return reply, reading.read_fetch(reply)

    async def _earliest(self, address: Address) -> int:
        body = reading.list_offsets_request({self._topic: {self._partition: reading.EARLIEST}}, 0)
        reply = await self.client.ask(
            address, reading.LIST_OFFSETS, reading.LIST_OFFSETS_VERSION, body, _FETCH_SECONDS
        )
        return next((each.offset for each in reading.read_list_offsets(reply) if not each.error), -1)

    async def _try_again(self) -> int:
        self.client.forget_leader(self._topic, self._partition)
        await asyncio.sleep(_RETRY_SECONDS * (0.5 + self.client.random.random()))
        return 0

    def _seen(self, batches: memoryview) -> Iterator[Seen]:
        at = 0
        while len(batches) - at >= HEADER_SIZE:
            header = read_header(batches, at)
            size = header.size_bytes
            if len(batches) - at < size:
                return
            self._read_to = header.last_offset + 1
            for record in decode_records(batches[at : at + size], _MAX_BYTES):
                if record.offset >= self.position:
                    yield self._told(record)
            at += size

    def _told(self, record: Record) -> Seen:
        return Seen(self.key, record.offset, (record.value or b"").decode())
