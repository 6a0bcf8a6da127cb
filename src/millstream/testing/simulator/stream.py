"""Producers that do not wait: several requests pipelined on one connection, and no retries.

Any node answers them, on behalf of the leaders. The guarantees are the same: acknowledged messages of one connection
are in the log in the order sent, and none is there twice, though half of them have no sequence for deduplication.
"""

import asyncio
from collections.abc import Callable
from random import Random

from millstream.protocol.errors import ErrorCode
from millstream.protocol.produce_forward import Batch, decode_produce_reply, encode_produce_request
from millstream.protocol.records import Record, encode_batch
from millstream.testing.history import Anomaly, History, Outcome, Send, judge
from millstream.testing.simulator import requests
from millstream.testing.simulator.admin import SimulatedAdmin
from millstream.testing.simulator.client import Address, NoAnswer, SimulatedClient
from millstream.testing.simulator.clients import ClientGroup
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.consumer import SimulatedConsumer

TOPIC = "stream"
_PARTITIONS = 2
_MOST_AT_ONCE = 5
_SECONDS = 6.0
_REQUEST_MS = 3000
_PAUSE_SECONDS = 0.5


class SimulatedStream:
    """One client; with `has_sequence` its batches carry an id and a sequence."""

    def __init__(self, client: SimulatedClient, history: History, *, has_sequence: bool) -> None:
        self.client = client
        self._history = history
        self._has_sequence = has_sequence
        self._identity: requests.ProducerIdentity | None = None
        self._sequences = [0] * _PARTITIONS
        self._address: Address | None = None
        self._life = 0
        """Whether everything sent on a connection was acknowledged: then nothing of it can still arrive."""

    async def work(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self._send_some()
            await asyncio.sleep(self.client.random.expovariate(1 / _PAUSE_SECONDS))

    async def _send_some(self) -> None:
        client, random = self.client, self.client.random
        if self._address is None and not await self._begin():
            return
        assert self._address is not None
        start = client.loop.time()
        asked = [
            [(index, self._next(index)) for index in self._some_partitions()]
            for _ in range(random.randint(1, _MOST_AT_ONCE))
        ]
        replies = await client.ask_at_once(
            self._address,
            requests.PRODUCE,
            requests.PRODUCE_VERSION,
            [self._request(places) for places in asked],
            _SECONDS,
        )
        is_whole = True
        for places, reply in zip(asked, replies, strict=True):
            is_whole &= self._note(start, places, reply)
        if not is_whole:
            self._end()

    async def _begin(self) -> bool:
        address = self.client.any_node()
        if self._has_sequence:
            try:
                reply = await self.client.ask(
                    address,
                    requests.INIT_PRODUCER_ID,
                    requests.INIT_PRODUCER_ID_VERSION,
                    requests.init_producer_id_request(),
                    _SECONDS,
                )
            except NoAnswer:
                return False
            identity = requests.read_init_producer_id(reply)
            if identity.error:
                return False
            self._identity, self._sequences = identity, [0] * _PARTITIONS
        self._address = address
        self._life += 1
        return True

    def _end(self) -> None:
        """Some of it is lost or still on its way: continue on another connection."""
        assert self._address is not None
        self.client.hang_up(self._address)
        self._address = None

    def _some_partitions(self) -> list[int]:
        chosen = [index for index in range(_PARTITIONS) if self.client.random.random() < 0.7]
        return chosen or [0]

    def _next(self, index: int) -> int:
        self._sequences[index] += 1
        return self._sequences[index] - 1

    def _value(self, index: int, number: int) -> str:
        return f"{self.client.name}-{self._life}-{index}-{number}"

    def _request(self, places: list[tuple[int, int]]) -> bytes:
        return b"".join(
            encode_produce_request(
                requests.PRODUCE_VERSION,
                None,
                -1,
                _REQUEST_MS,
                [Batch(TOPIC, index, memoryview(self._batch(index, number))) for index, number in places],
            )
        )

    def _batch(self, index: int, number: int) -> bytes:
        now_ms = 1_700_000_000_000 + int(self.client.loop.time() * 1000)
        records = [Record(0, now_ms, None, self._value(index, number).encode())]
        identity = self._identity
        if identity is None:
            return encode_batch(records)
        return encode_batch(
            records, producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=number
        )

    def _note(self, start: float, places: list[tuple[int, int]], reply: memoryview | None) -> bool:
        """Whether all of it was acknowledged."""
        found = {}
        if reply is not None:
            found = {each.index: each for each in decode_produce_reply(reply, requests.PRODUCE_VERSION)}
        is_whole = True
        for index, number in places:
            outcome = found.get(index)
            is_known = outcome is not None and outcome.error is ErrorCode.NONE
            is_whole &= is_known
            self._history.sends.append(
                Send(
                    f"{self.client.name}-{self._life}",
                    f"{TOPIC}-{index}",
                    self._value(index, number),
                    start,
                    self.client.loop.time(),
                    Outcome.OK if is_known else Outcome.UNKNOWN,
                    outcome.base_offset if outcome is not None and is_known else None,
                )
            )
        return is_whole


class Streams(ClientGroup):
    """Both kinds of producers on their own topic, and the outcome."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.history = History()
        super().__init__(cluster, random)
        self._is_over = False
        self._admin = SimulatedAdmin(self._client("stream-admin"), [], 3)
        self._streams = [
            SimulatedStream(self._client("plain"), self.history, has_sequence=False),
            SimulatedStream(self._client("numbered"), self.history, has_sequence=True),
        ]

    def start(self) -> None:
        self._task = self._cluster.loop.create_task(self._run())

    async def finish(self) -> None:
        """Let pending work finish, and read everything."""
        self._is_over = True
        assert self._task is not None
        await self._task
        for index in range(_PARTITIONS):
            client = self._client(f"stream-final-{index}")
            consumer = SimulatedConsumer(client, TOPIC, index, self.history, is_final=True)
            await self._as(client, consumer.read_to_end())
            self.history.final_keys.add(f"{TOPIC}-{index}")

    def judge(self) -> list[Anomaly]:
        return judge(self.history)

    async def _run(self) -> None:
        await self._as(self._admin.client, self._admin.create_surely(TOPIC, _PARTITIONS, {}))
        await asyncio.gather(
            *(self._as(each.client, each.work(lambda: self._is_over)) for each in self._streams)
        )
