"""The coordinators of MQTT sessions on this node: appends their pending messages to topics."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from millstream.broker.coordinators.hosted import Hosted
from millstream.coordinator.decision import Request
from millstream.coordinator.definition import Definition, InternalTopic
from millstream.coordinator.mqtt_sessions.machine import SessionCoordinator
from millstream.coordinator.mqtt_sessions.requests import (
    AppendPending,
    Done,
    NeedProducer,
    PendingAppended,
    PendingRefused,
    ProducerGiven,
    RemoteSessionRequest,
    SessionEffect,
)
from millstream.coordinator.mqtt_sessions.settings import SessionSettings
from millstream.doors.caller import NODE
from millstream.doors.partitions import PartitionAccess, Place
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Registry
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import MQTT_SESSIONS_TOPIC
from millstream.protocol.records import Record, encode_batch

log = get_logger("millstream.mqtt")

PARTITIONS: Final = 16
_PAUSE_SECONDS: Final = 0.5
# The node that accepted the message may know a new topic before this node does.
_UNKNOWN_SECONDS: Final = 30.0
# A retry would be refused again.
_FINAL: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.POLICY_VIOLATION,
    }
)


class MqttSessions:
    """`hosted` returns the coordinators that run by `definition`; it is called with the first effect."""

    def __init__(
        self,
        hosted: Callable[[], Hosted[SessionCoordinator]],
        partitions: PartitionAccess,
        new_producer_id: Callable[[], Awaitable[int]],
        new_incarnation: Callable[[], int],
        now_ms: Callable[[], int],
        settings: SessionSettings,
        registry: Registry,
    ) -> None:
        self._hosted = hosted
        self._partitions = partitions
        self._new_producer_id = new_producer_id
        self._now_ms = now_ms
        self._tasks: set[asyncio.Task[None]] = set()
        self.definition: Definition[SessionCoordinator] = Definition(
            InternalTopic(MQTT_SESSIONS_TOPIC, PARTITIONS),
            lambda partition: SessionCoordinator(partition, settings, new_incarnation()),
            RemoteSessionRequest,
            perform=self._perform,
        )

        for name, documentation, compute in (
            ("millstream_mqtt_sessions", "MQTT sessions that this node coordinates.", self._sessions),
            (
                "millstream_mqtt_owed_bytes",
                "Messages of QoS 2 and wills that wait to be appended to the log.",
                self._pending_bytes,
            ),
        ):
            registry.computed_gauge(name, documentation, compute)

    def _sessions(self) -> int:
        return sum(len(machine.state.sessions) for machine in self._hosted().machines())

    def _pending_bytes(self) -> int:
        return sum(machine.pending_bytes for machine in self._hosted().machines())

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _perform(self, partition: int, effect: SessionEffect) -> None:
        work = (
            partial(self._give_producer, partition)
            if isinstance(effect, NeedProducer)
            else partial(self._append, partition, effect)
        )
        task = asyncio.get_running_loop().create_task(keep_going(work), name=f"mqtt effect {partition}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_producer(self, partition: int) -> None:
        while True:
            try:
                await self._report(partition, ProducerGiven(await self._new_producer_id()))
            except KafkaError:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return

    async def _append(self, partition: int, effect: AppendPending) -> None:
        """Retry until it succeeds or the coordinator has moved; its successor repeats it without duplicates."""
        loop = asyncio.get_running_loop()
        first = effect.messages[0]
        place = Place(first.message.topic, first.message.partition)
        unknown_until: float | None = None
        while self._hosted().machine(partition) is not None:
            try:
                await self._partitions.append(NODE, place, self._batch(effect))
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown_until = unknown_until or loop.time() + _UNKNOWN_SECONDS
                    is_final = loop.time() >= unknown_until
                else:
                    is_final = error.code in _FINAL
                if is_final:
                    await self._refuse(partition, effect, error)
                    return
                if error.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    log.info("session message not appended yet", place=str(place), error=error.message)
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
            await self._report(partition, PendingAppended(tuple(each.number for each in effect.messages)))
            return

    def _batch(self, effect: AppendPending) -> bytes:
        """With the time of this attempt: leaders refuse wrong ones, and the clock may have jumped since the first."""
        now_ms = self._now_ms()
        records = [
            Record(number, now_ms, each.message.key, each.message.value, each.message.headers)
            for number, each in enumerate(effect.messages)
        ]
        return encode_batch(
            records,
            producer_id=effect.producer_id,
            producer_epoch=effect.epoch,
            base_sequence=effect.messages[0].sequence,
        )

    async def _refuse(self, partition: int, effect: AppendPending, error: KafkaError) -> None:
        """One of several may be too large: drop the largest, and let the others be tried again."""
        largest = max(effect.messages, key=lambda each: len(each.message.value or b""))
        log.warning("session message dropped", topic=largest.message.topic, error=error.message)
        await self._report(partition, PendingRefused(largest.number))

    async def _report(self, partition: int, request: Request[Done]) -> None:
        """Report to the machine that decided on it; if it has moved, its successor learns it from the log."""
        try:
            await self._hosted().decide_in(partition, request)
        except KafkaError as error:
            log.debug("effect not reported", partition=partition, error=error.message)
