"""A consumer of one partition, from the beginning on, at the leader."""

import asyncio
from collections.abc import Iterator

from millstream.protocol.record_batch import read_header
from millstream.protocol.records import decode_records
from millstream.spark.wire import requests as reading
from millstream.testing.history import History, Poll, Seen
from millstream.testing.simulator.client import NoAnswer, SimulatedClient

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
    ) -> None:
        """`process` is its name in the history, when it is not the client's."""
        self.position = 0
        self.high_watermark = -1
        self.client = client
        self._topic = topic
        self._partition = partition
        self._key = f"{topic}-{partition}"
        self._history = history
        self._is_final = is_final
        self._process = process or client.name
        self._is_fresh = True

    async def poll(self, wait_ms: int = _WAIT_MS) -> int:
        """Fetch once; how many records came. Errors of the cluster mean none."""
        client = self.client
        start = client.loop.time()
        try:
            address = await client.leader_of(self._topic, self._partition)
            if address is None:
                raise NoAnswer("no leader")
            body = reading.fetch_request(
                self._topic, self._partition, self.position,
                max_bytes=_MAX_BYTES, max_wait_ms=wait_ms, min_bytes=1, isolation_level=0,
            )  # fmt: skip
            reply = await client.ask(address, reading.FETCH, reading.FETCH_VERSION, body, _FETCH_SECONDS)
        except NoAnswer:
            return await self._try_again()
        found = reading.read_fetch(reply)
        if found.error:
            # Also for an offset out of range: a leader that was deposed may say so. The last phase would find a loss.
            return await self._try_again()
        self.high_watermark = found.high_watermark
        at, size = found.records
        seen = tuple(self._seen(reply[at : at + size]))
        if seen:
            self._history.polls.append(
                Poll(self._process, seen, start, client.loop.time(), self._is_fresh, self._is_final)
            )
            self._is_fresh = False
            self.position = seen[-1].offset + 1
        return len(seen)

    async def _try_again(self) -> int:
        self.client.forget_leader(self._topic, self._partition)
        await asyncio.sleep(_RETRY_SECONDS * (0.5 + self.client.random.random()))
        return 0

    def _seen(self, batches: memoryview) -> Iterator[Seen]:
        at = 0
        while len(batches) - at > 61:
            size = read_header(batches, at).size_bytes
            if len(batches) - at < size:
                return
            for record in decode_records(batches[at : at + size], _MAX_BYTES):
                if record.offset >= self.position:
                    yield Seen(self._key, record.offset, (record.value or b"").decode())
            at += size
