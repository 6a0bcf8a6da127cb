"""A producer with acks=all and idempotence that does not give up on a batch before its time-out."""

import asyncio

from millstream.protocol.errors import ErrorCode
from millstream.protocol.records import Record, encode_batch
from millstream.testing.history import History, Outcome, Send
from millstream.testing.simulator import requests
from millstream.testing.simulator.client import NoAnswer, SimulatedClient

_RETRY_SECONDS = 0.3
_REQUEST_SECONDS = 3.0
_GIVE_UP_SECONDS = 12.0


class SimulatedProducer:
    """Sends one batch after the other to one partition; every value is sent once."""

    def __init__(
        self,
        client: SimulatedClient,
        topic: str,
        partition: int,
        history: History,
        *,
        topic_id: bytes | None = None,
        key: str | None = None,
    ) -> None:
        """`key` is the partition's name in the history. With `topic_id`, requests name the topic by id."""
        self.acknowledged = 0
        self.client = client
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        self._key = key or f"{topic}-{partition}"
        self._history = history
        self._identity: requests.ProducerIdentity | None = None
        self._sequence = 0
        self._count = 0

    async def send(self, count: int) -> bool:
        """Send so many values as one batch; returns whether it was acknowledged."""
        loop = self.client.loop
        values = [f"{self.client.name}-{self._count + each}" for each in range(count)]
        self._count += count
        start = loop.time()
        deadline = start + _GIVE_UP_SECONDS
        outcome, base_offset = await self._deliver(values, deadline)
        for number, value in enumerate(values):
            offset = base_offset + number if base_offset >= 0 else None
            self._sent(value, start, outcome, offset)
        if outcome is Outcome.OK:
            self._sequence += count
            self.acknowledged += count
        else:
            # The batch may still be appended: take a new identity, so that it cannot be followed by later ones.
            self._identity = None
        return outcome is Outcome.OK

    def _sent(self, value: str, start: float, outcome: Outcome, offset: int | None) -> None:
        end = self.client.loop.time()
        self._history.sends.append(Send(self.client.name, self._key, value, start, end, outcome, offset))

    def _record(self, number: int, timestamp_ms: int, value: str) -> Record:
        return Record(number, timestamp_ms, None, value.encode())

    async def _deliver(self, values: list[str], deadline: float) -> tuple[Outcome, int]:
        loop = self.client.loop
        was_sent = False
        while loop.time() < deadline:
            try:
                identity = self._identity or await self._new_identity()
                address = await self.client.leader_of(self._topic, self._partition)
                if identity is not None and address is not None:
                    was_sent = True
                    produced = await self._produce(address, identity, values)
                    if produced.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                        return Outcome.OK, produced.base_offset
            except NoAnswer:
                pass
            self.client.forget_leader(self._topic, self._partition)
            await asyncio.sleep(_RETRY_SECONDS * (0.5 + self.client.random.random()))
        return (Outcome.UNKNOWN if was_sent else Outcome.FAILED), -1

    async def _produce(
        self, address: tuple[str, int], identity: requests.ProducerIdentity, values: list[str]
    ) -> requests.Produced:
        now_ms = 1_700_000_000_000 + int(self.client.loop.time() * 1000)
        batch = encode_batch(
            [self._record(number, now_ms, value) for number, value in enumerate(values)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self._sequence,
        )
        timeout_ms = int(_REQUEST_SECONDS * 1000)
        if self._topic_id is not None:
            body = requests.produce_by_id_request(self._topic_id, self._partition, batch, timeout_ms)
            version = requests.PRODUCE_BY_ID_VERSION
            reply = await self.client.ask(address, requests.PRODUCE, version, body, _REQUEST_SECONDS)
            return requests.read_produce_by_id(reply)
        body = requests.produce_request(self._topic, self._partition, batch, timeout_ms)
        reply = await self.client.ask(
            address, requests.PRODUCE, requests.PRODUCE_VERSION, body, _REQUEST_SECONDS
        )
        return requests.read_produce(reply)

    async def _new_identity(self) -> requests.ProducerIdentity | None:
        reply = await self.client.ask(
            self.client.any_node(),
            requests.INIT_PRODUCER_ID,
            requests.INIT_PRODUCER_ID_VERSION,
            requests.init_producer_id_request(),
            _REQUEST_SECONDS,
        )
        identity = requests.read_init_producer_id(reply)
        if identity.error:
            return None
        self._identity, self._sequence = identity, 0
        return identity
