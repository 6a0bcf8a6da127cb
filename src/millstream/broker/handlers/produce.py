"""Produce: validate, append, and acknowledge when the records are as durable as was asked."""

import asyncio
from typing import TYPE_CHECKING

from millstream.broker.dispatch import LaterReply, RequestContext
from millstream.broker.opened_batches import must_open, open_and_convert
from millstream.broker.partition import Partition
from millstream.cluster.metadata.names import is_internal
from millstream.observability.logs import get_logger
from millstream.protocol.api import PRODUCE_SERVED_FROM
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.produce import (
    PartitionOutcome,
    ProduceRequest,
    decode_produce,
    encode_produce_reply,
)
from millstream.protocol.record_batch import BatchHeader, check_produced

if TYPE_CHECKING:
    from millstream.broker.node import Broker

log = get_logger("millstream.broker")

NO_ACKS, LEADER_ACK, ALL_ACKS = 0, 1, -1
_ACKS = (NO_ACKS, LEADER_ACK, ALL_ACKS)

_Checked = tuple[PartitionOutcome, Partition, memoryview, BatchHeader]


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    produce = decode_produce(request, position, context.version)
    broker.metrics.produce_requests.value += 1
    outcomes, checked = _check(broker, context, produce)
    if any(must_open(partition.log.config, header) for _, partition, _, header in checked):
        _serve_opened(broker, context, produce, outcomes, checked)
    else:
        _append_all(broker, context, produce, outcomes, checked)


def _check(
    broker: "Broker", context: RequestContext, produce: ProduceRequest
) -> tuple[list[PartitionOutcome], list[_Checked]]:
    """An outcome for each partition, and those whose batch may be appended."""
    outcomes: list[PartitionOutcome] = []
    checked: list[_Checked] = []
    for topic, partitions in produce.topics:
        for index, records in partitions:
            outcome = PartitionOutcome(topic, index)
            outcomes.append(outcome)
            try:
                if context.version < PRODUCE_SERVED_FROM:
                    raise KafkaError(
                        ErrorCode.UNSUPPORTED_VERSION, f"produce version {context.version} is not served"
                    )
                if produce.acks not in _ACKS:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {produce.acks}; 0, 1 and -1 are taken"
                    )
                partition = broker.partitions.find(topic, index)
                if is_internal(partition.topic):
                    # What is in there is replayed into groups and the like; only they write it.
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION,
                        f"the topic {partition.topic} is internal; clients cannot write to it",
                    )
                if records is None:
                    raise KafkaError(ErrorCode.INVALID_RECORD, "a partition has no records")
                header = check_produced(records, context.version)
                if header.is_transactional:
                    raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction is open for this producer")
            except KafkaError as error:
                _fail(broker, context, outcome, error)
                continue
            checked.append((outcome, partition, records, header))
    return outcomes, checked


def _serve_opened(
    broker: "Broker",
    context: RequestContext,
    produce: ProduceRequest,
    outcomes: list[PartitionOutcome],
    checked: list[_Checked],
) -> None:
    """Batches that the topic's settings make us open are opened in a thread; the connection waits, so order is kept."""
    owned = [(outcome, partition, bytes(view), header) for outcome, partition, view, header in checked]
    held_bytes = sum(len(data) for _, _, data, _ in owned)
    broker.server.memory.take(held_bytes)
    context.connection.block()

    def convert() -> list[_Checked | KafkaError]:
        converted: list[_Checked | KafkaError] = []
        for outcome, partition, data, _ in owned:
            try:
                view = memoryview(open_and_convert(partition.log.config, data))
                converted.append((outcome, partition, view, check_produced(view, context.version)))
            except KafkaError as error:
                converted.append(error)
        return converted

    def done(converted: list[_Checked | KafkaError], error: BaseException | None) -> None:
        connection = context.connection
        broker.server.memory.give_back(held_bytes)
        try:
            if error is not None:
                raise error
            append(converted)
        except Exception:
            log.exception("request failed", peer=connection.peer, api=context.api.name)
            connection.close()
        finally:
            connection.unblock()

    def append(converted: list[_Checked | KafkaError]) -> None:
        ready: list[_Checked] = []
        for (outcome, *_), result in zip(owned, converted, strict=True):
            if isinstance(result, KafkaError):
                _fail(broker, context, outcome, result)
            else:
                ready.append(result)
        _append_all(broker, context, produce, outcomes, ready)

    broker.workers.submit(convert, done)


def _append_all(
    broker: "Broker",
    context: RequestContext,
    produce: ProduceRequest,
    outcomes: list[PartitionOutcome],
    checked: list[_Checked],
) -> None:
    now_ms = broker.clock.now_ms()
    waiting: DelayedProduce | None = None
    for outcome, partition, records, header in checked:
        try:
            if broker.partitions.is_withheld(partition):
                partition.refuse(header, partition.cut_off())
            if produce.acks == ALL_ACKS and partition.replication is not None:
                partition.require_enough_replicas(header)
            appended = partition.append(records, header, now_ms)
        except KafkaError as error:
            _fail(broker, context, outcome, error)
            continue
        if not appended.duplicate:
            broker.count_messages_in(partition.topic, header.record_count)
        outcome.base_offset = appended.base_offset
        outcome.log_append_time_ms = appended.log_append_time_ms
        outcome.log_start_offset = partition.log.log_start_offset
        if produce.acks == NO_ACKS or appended.last_offset < partition.high_watermark:
            continue
        by_all = produce.acks == ALL_ACKS
        if partition.replication is not None and partition.is_acknowledged(
            appended.last_offset, by_all=by_all
        ):
            continue
        if waiting is None:
            waiting = DelayedProduce(broker, context.reply_later(), outcomes)
        waiting.wait_for(partition, appended.last_offset, outcome, by_all=by_all)
    if waiting is not None:
        waiting.start_timer(produce.timeout_ms)
    elif produce.acks != NO_ACKS:
        context.reply([encode_produce_reply(context.version, outcomes)])
    elif any(outcome.error for outcome in outcomes):
        # Nobody reads a reply to acks=0; a closed connection is the only way to say that something went wrong.
        context.connection.refuse(next(outcome.message or "" for outcome in outcomes if outcome.error))


def _fail(broker: "Broker", context: RequestContext, outcome: PartitionOutcome, error: KafkaError) -> None:
    outcome.error = error.code
    outcome.message = error.message
    outcome.base_offset = -1
    broker.dispatcher.count_error(context.api, error.code)
    if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
        broker.storage_error("append", error)


class DelayedProduce:
    """A produce request whose records are written but not yet as durable as their topics ask."""

    __slots__ = ("_broker", "_outcomes", "_reply", "_timer", "_waiting")

    def __init__(self, broker: "Broker", reply: LaterReply, outcomes: list[PartitionOutcome]) -> None:
        self._broker = broker
        self._reply = reply
        self._outcomes = outcomes
        self._waiting: dict[Partition, list[PartitionOutcome]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(
        self, partition: Partition, last_offset: int, outcome: PartitionOutcome, *, by_all: bool
    ) -> None:
        if partition.await_acknowledged(last_offset, self, by_all=by_all):
            self._waiting.setdefault(partition, []).append(outcome)

    def start_timer(self, timeout_ms: int) -> None:
        if not self._waiting:
            self._finish()
            return
        self._broker.delayed_produces += 1
        self._timer = self._broker.loop.call_later(max(timeout_ms, 0) / 1000, self._timed_out)

    def acknowledged(self, partition: Partition, error: KafkaError | None) -> None:
        outcomes = self._waiting.pop(partition, None)
        if outcomes is None:
            return
        if error is not None:
            self._fail_all(outcomes, error)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._broker.delayed_produces -= 1
            self._finish()

    def _timed_out(self) -> None:
        late = KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            "the records were not on disk, or not at enough replicas, within the request's timeout",
        )
        for outcomes in self._waiting.values():
            self._fail_all(outcomes, late)
        self._waiting.clear()
        self._broker.delayed_produces -= 1
        self._finish()

    def _fail_all(self, outcomes: list[PartitionOutcome], error: KafkaError) -> None:
        for outcome in outcomes:
            _fail(self._broker, self._reply.context, outcome, error)

    def _finish(self) -> None:
        self._reply.complete([encode_produce_reply(self._reply.context.version, self._outcomes)])
