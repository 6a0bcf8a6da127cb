"""Queues: messages delivered and acknowledged a second by 8 consumers of a share group, all of it durable.

One by one: each message has an acknowledgement of its own, many of which are under way. In batches: what was fetched
together is acknowledged with the next fetch. Every message must have been acknowledged once at the end, or the run is
refused.
"""

import asyncio
import datetime
import time
import uuid
from typing import Any

import confluent_kafka

from bench.groups.connection import Connection, GroupError
from bench.peers import Durability
from bench.scenarios.names import QUEUE_IN_BATCHES, QUEUE_ONE_BY_ONE
from bench.session import Session
from millstream.client import QueueAdmin
from millstream.protocol.api import APIS, Api
from millstream.protocol.codec import decode_response, encode_request

NAME = "queues"
CONSUMERS = 8
_VERSION = 2
_APIS = {api.name: api for api in APIS.values()}
_FETCH, _ACKNOWLEDGE = _APIS["share_fetch"], _APIS["share_acknowledge"]
_VALUE = b"x" * 100


def run(session: Session) -> None:
    rounds = session.plan.rounds_of(full=5, quick=2)
    with session.millstream() as broker:
        for name, count, one_by_one in ((QUEUE_IN_BATCHES, 200_000, False), (QUEUE_ONE_BY_ONE, 40_000, True)):
            rates = []
            for number in range(rounds + 1):
                session.display.step(f"{name}, round {number} of {rounds}")
                topic = session.unique("queue")
                broker.create_topic(topic, 1, Durability.DURABLE)
                _fill(broker.bootstrap, topic, count)
                rate = asyncio.run(measure(broker.bootstrap, topic, count, one_by_one=one_by_one))
                # The first one finds the internal topics' logs not yet there.
                rates += [rate] if number else []
            session.record_figure(NAME, name, "/s", rates)


def _fill(bootstrap: str, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": count}
    )
    for _ in range(count):
        producer.produce(topic, _VALUE)
    producer.flush()


async def measure(bootstrap: str, topic: str, count: int, *, one_by_one: bool) -> float:
    group = f"{topic}-group"
    with QueueAdmin(bootstrap) as admin:
        admin.alter_group_configs(
            group, {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": "4000"}
        )
        topic_id = admin.topic_id(topic)
    left = _Left(count)
    consumers = [
        _Consumer(await Connection.open(bootstrap), group, topic_id, left, one_by_one)
        for _ in range(CONSUMERS)
    ]
    began = time.perf_counter()
    try:
        await asyncio.gather(*(consumer.run() for consumer in consumers))
        took = time.perf_counter() - began
    finally:
        for consumer in consumers:
            consumer.connection.close()
    with QueueAdmin(bootstrap) as admin:
        depth = sum(row.depth for row in admin.queues(group))
    if depth or left.count:
        raise GroupError(f"{depth} of {count} messages are not settled, {left.count} not acknowledged")
    return count / took


class _Left:
    def __init__(self, count: int) -> None:
        self.count = count


class _Consumer:
    def __init__(
        self, connection: Connection, group: str, topic_id: uuid.UUID, left: _Left, one_by_one: bool
    ) -> None:
        self.connection = connection
        self._session = {"group_id": group, "member_id": str(uuid.uuid4())}
        self._topic_id = topic_id
        self._left = left
        self._one_by_one = one_by_one
        self._epoch = 0

    async def run(self) -> None:
        held: list[tuple[int, int]] = []
        while self._left.count > 0:
            got = await self._fetch(held)
            self._left.count -= sum(last - first + 1 for first, last in held)
            held = got
            if self._one_by_one:
                offsets = [offset for first, last in held for offset in range(first, last + 1)]
                await asyncio.gather(*[self._acknowledge(offset) for offset in offsets])
                held = []

    async def _fetch(self, acknowledged: list[tuple[int, int]]) -> list[tuple[int, int]]:
        reply = await self._ask(
            _FETCH,
            max_wait=100,
            min_bytes=1,
            max_bytes=4 << 20,
            max_records=500,
            batch_size=500,
            share_acquire_mode=1,
            is_renew_ack=False,
            topics=self._topics([(first, last) for first, last in acknowledged]),
            forgotten_topics_data=[],
        )
        found = [partition for topic in reply.responses for partition in topic.partitions]
        if any(each.error_code or each.acknowledge_error_code for each in found):
            raise GroupError(f"share fetch: {found}")
        return [
            (record.first_offset, record.last_offset) for each in found for record in each.acquired_records
        ]

    async def _acknowledge(self, offset: int) -> None:
        reply = await self._ask(_ACKNOWLEDGE, is_renew_ack=False, topics=self._topics([(offset, offset)]))
        if any(each.error_code for topic in reply.responses for each in topic.partitions):
            raise GroupError(f"share acknowledge: {reply}")
        self._left.count -= 1

    def _topics(self, ranges: list[tuple[int, int]]) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [1]} for first, last in ranges
        ]
        return [
            {
                "topic_id": self._topic_id,
                "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}],
            }
        ]

    async def _ask(self, api: Api, **fields: Any) -> Any:
        body = encode_request(
            api, _VERSION, {**self._session, "share_session_epoch": self._epoch, **_durations(fields)}
        )
        self._epoch += 1
        reply = await self.connection.call(api.key, _VERSION, body, flexible=True)
        answer = decode_response(api, _VERSION, memoryview(reply))
        if answer.error_code:
            raise GroupError(f"{api.name}: {answer.error_message}")
        return answer


def _durations(fields: dict[str, Any]) -> dict[str, Any]:
    wait = fields.get("max_wait")
    return fields if wait is None else {**fields, "max_wait": datetime.timedelta(milliseconds=wait)}
