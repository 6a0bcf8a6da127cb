"""Topics that are created, used, grown, moved, trimmed, compacted and deleted while everything else happens.

A name has many lives, each judged separately: its clients name it by its id.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode
from millstream.testing.history import Anomaly, History, judge
from millstream.testing.history.compacted import CompactedHistory, judge_compacted
from millstream.testing.simulator import requests
from millstream.testing.simulator.client import NoAnswer, SimulatedClient
from millstream.testing.simulator.consumer import SimulatedConsumer
from millstream.testing.simulator.keyed_clients import KeyedConsumer, KeyedProducer
from millstream.testing.simulator.mover import Mover, grow
from millstream.testing.simulator.plan import SideKind, SidePlan
from millstream.testing.simulator.producer import SimulatedProducer

log = get_logger("millstream.side")

_SECONDS = 6.0
_MOST_PARTITIONS = 4
_WORK_SECONDS = 3.0
_WAIT_MS = 1000
_NO_ID = UUID(int=0)
_GONE = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)

Spawn = Callable[[SimulatedClient, Coroutine[Any, Any, None]], None]
NewClient = Callable[[str], SimulatedClient]


@dataclass(slots=True, eq=False)
class Life:
    """`is_going`: its deletion was requested, so it may be gone. `is_over`: nobody uses it."""

    topic: str
    topic_id: UUID
    number: int
    producers: list[SimulatedProducer] = field(default_factory=list)
    is_going: bool = False
    is_over: bool = False

    def key(self, partition: int) -> str:
        return f"{self.topic}.{self.number}-{partition}"

    @property
    def partitions(self) -> int:
        return len(self.producers)


class SideTopic:
    """One name and its lives. `history` or `compacted` records what the clients saw in all of them."""

    def __init__(
        self, plan: SidePlan, new_client: NewClient, spawn: Spawn, mover: Callable[[SimulatedClient], Mover]
    ) -> None:
        self.history = History()
        self.compacted = CompactedHistory()
        self.lives: list[Life] = []
        self.client = new_client(plan.name)
        self._plan = plan
        self._new_client = new_client
        self._spawn = spawn
        self._mover = mover(self.client)
        self._is_left_alone = False
        self._is_over = False
        works: dict[str, Callable[[Life], Awaitable[None]]] = {
            "growth": self._grow,
            "moves": self._move,
            "round_trips": self._round_trip,
            "trims": self._trim,
        }
        self._works = [works[each] for each in plan.works]

    def leave_alone(self) -> None:
        """From now on it is left unchanged."""
        self._is_left_alone = True

    def stop(self) -> None:
        self._is_over = True

    @property
    def certain(self) -> list[Life]:
        """The lives that certainly exist, whatever the outcome of requests without an answer."""
        return [life for life in self.lives if not life.is_going]

    # -- the lives

    async def work(self) -> None:
        random = self.client.random
        while not self._is_left_alone:
            try:
                life = await self._begin()
                if life is not None:
                    await self._change(life)
                    await self._end(life)
            except NoAnswer as error:
                log.info("no answer", topic=self._plan.name, error=str(error))
            await asyncio.sleep(random.expovariate(1 / 0.5))

    async def _begin(self) -> Life | None:
        """The existing life, or a new one; None if there is none now."""
        plan, client = self._plan, self.client
        topic_id, count = await self._look()
        if topic_id == _NO_ID:
            body = requests.create_topic_request(plan.name, plan.partitions, plan.replicas, plan.configs)
            version = requests.CREATE_TOPICS_VERSION
            await client.ask(client.any_node(), requests.CREATE_TOPICS, version, body, _SECONDS)
            topic_id, count = await self._look()
        if topic_id == _NO_ID or self._is_left_alone:
            return None
        known = next((life for life in self.lives if life.topic_id == topic_id), None)
        if known is not None:
            return known
        for earlier in self.lives:
            earlier.is_going = earlier.is_over = True
        life = Life(plan.name, topic_id, len(self.lives))
        log.warning("topic lives", topic=plan.name, life=life.number, topic_id=str(topic_id))
        self.lives.append(life)
        self._use(life, count)
        return life

    async def _look(self) -> tuple[UUID, int]:
        """The topic's id and number of partitions, as far as any node knows."""
        found = await self.client.call(
            self.client.any_node(), "metadata", 12, _SECONDS,
            topics=[{"topic_id": _NO_ID, "name": self._plan.name}], allow_auto_topic_creation=False,
        )  # fmt: skip
        topic = found.topics[0]
        return (
            (topic.topic_id or _NO_ID, len(topic.partitions))
            if topic.error_code == ErrorCode.NONE
            else (_NO_ID, 0)
        )

    async def _change(self, life: Life) -> None:
        random, loop = self.client.random, self.client.loop
        ends_at = loop.time() + random.expovariate(1 / self._plan.life_seconds)
        while not self._is_left_alone and loop.time() < ends_at and not life.is_going:
            await asyncio.sleep(min(random.expovariate(1 / _WORK_SECONDS), max(0.0, ends_at - loop.time())))
            if self._works and not self._is_left_alone:
                try:
                    await random.choice(self._works)(life)
                except NoAnswer as error:
                    log.info("no answer", topic=self._plan.name, error=str(error))

    async def _end(self, life: Life) -> None:
        """Delete the topic, mostly while it is in use."""
        random = self.client.random
        if self._is_left_alone:
            return
        life.is_going = True
        life.is_over = random.random() < 0.3
        code = await self._delete(life)
        await asyncio.sleep(random.uniform(0.0, 2.0))
        life.is_over = code in _GONE

    async def _delete(self, life: Life) -> int:
        reply = await self.client.call(
            self.client.any_node(), "delete_topics", 6, _SECONDS,
            topics=[{"name": None, "topic_id": life.topic_id}], timeout=timedelta(seconds=5),
        )  # fmt: skip
        code: int = reply.responses[0].error_code
        log.warning("topic deleted", topic=life.topic, life=life.number, code=code)
        return code

    # -- what is done to one

    async def _grow(self, life: Life) -> None:
        if life.partitions < _MOST_PARTITIONS:
            await grow(self.client, life.topic, life.partitions + 1)
            topic_id, count = await self._look()
            if topic_id == life.topic_id:
                self._use(life, count)

    async def _move(self, life: Life) -> None:
        await self._mover.move(life.topic, self.client.random.randrange(life.partitions))

    async def _round_trip(self, life: Life) -> None:
        await self._mover.round_trip(life.topic, self.client.random.randrange(life.partitions))

    async def _trim(self, life: Life) -> None:
        client, index = self.client, self.client.random.randrange(life.partitions)
        key = life.key(index)
        ends = [send.offset + 1 for send in self.history.sends if send.key == key and send.offset is not None]
        address = await client.leader_of(life.topic, index)
        if not ends or address is None:
            return
        offset = client.random.randint(0, max(ends))
        self.history.removable[key] = max(offset, self.history.removable.get(key, 0))
        client.forget_leader(life.topic, index)
        reply = await client.call(
            address, "delete_records", 1, _SECONDS, timeout=timedelta(seconds=4),
            topics=[{"name": life.topic, "partitions": [{"partition_index": index, "offset": offset}]}],
        )  # fmt: skip
        code = reply.topics[0].partitions[0].error_code
        log.warning("trimmed", topic=life.topic, partition=index, offset=offset, code=code)
        if code == ErrorCode.NONE:
            self.history.removed[key] = max(offset, self.history.removed.get(key, 0))

    # -- those who use it

    def _use(self, life: Life, count: int) -> None:
        """A producer and a consumer for each partition that has none."""
        for index in range(life.partitions, count):
            name = f"{life.topic}.{life.number}-{index}"
            producer = self._producer(self._new_client(f"producer of {name}"), life, index)
            life.producers.append(producer)
            self._spawn(producer.client, self._produce(life, producer))
            consumer = self._consumer(self._new_client(f"consumer of {name}"), life, index)
            self._spawn(consumer.client, self._consume(life, consumer))

    def _producer(self, client: SimulatedClient, life: Life, index: int) -> SimulatedProducer:
        topic_id, key = life.topic_id.bytes, life.key(index)
        if self._plan.kind is SideKind.COMPACTED:
            return KeyedProducer(client, life.topic, index, self.compacted, topic_id=topic_id, key=key)
        return SimulatedProducer(client, life.topic, index, self.history, topic_id=topic_id, key=key)

    def _consumer(
        self, client: SimulatedClient, life: Life, index: int, *, is_final: bool = False
    ) -> SimulatedConsumer:
        topic_id, key = life.topic_id.bytes, life.key(index)
        if self._plan.kind is SideKind.COMPACTED:
            return KeyedConsumer(client, life.topic, index, self.compacted, topic_id, key, is_final=is_final)
        return SimulatedConsumer(
            client, life.topic, index, self.history, topic_id=topic_id, key=key, is_final=is_final
        )

    async def _produce(self, life: Life, producer: SimulatedProducer) -> None:
        random = producer.client.random
        while not (self._is_over or life.is_over):
            await producer.send(random.choice((1, 1, 3)))
            await asyncio.sleep(random.expovariate(1.0))

    async def _consume(self, life: Life, consumer: SimulatedConsumer) -> None:
        while not (self._is_over or life.is_over):
            await consumer.poll(wait_ms=_WAIT_MS)

    # -- the end

    def readers(self) -> list[SimulatedConsumer]:
        """Read all lives that must exist, from the beginning."""
        return [
            self._consumer(self._new_client(f"final {life.key(index)}"), life, index, is_final=True)
            for life in self.certain
            for index in range(life.partitions)
        ]

    def was_read(self, reader: SimulatedConsumer) -> None:
        """Read to the end."""
        if isinstance(reader, KeyedConsumer):
            reader.tell_found()
            return
        self.history.final_keys.add(reader.key)
        if self._plan.kind is SideKind.RETAINED:
            self.history.removable[reader.key] = reader.log_start

    def judge(self) -> list[Anomaly]:
        if self._plan.kind is SideKind.COMPACTED:
            return judge_compacted(self.compacted)
        if self._plan.kind is SideKind.RETAINED:
            # For deleted lives it is unknown how many records had expired.
            for life in self.lives:
                for index in range(life.partitions):
                    self.history.removable.setdefault(life.key(index), 1 << 62)
        return judge(self.history)
