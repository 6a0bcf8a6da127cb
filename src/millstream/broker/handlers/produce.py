"""Produce: validate, append, and acknowledge when the records are as durable as was asked."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.broker.partitions.opened_batches import OPENING_BYTES, must_open, open_and_convert
from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.names import is_internal
from millstream.observability.logs import get_logger
from millstream.protocol.api import PRODUCE_SERVED_FROM
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.produce import (
    PartitionOutcome,
    PartitionRecords,
    ProduceRequest,
    TopicRecords,
    decode_produce,
    encode_produce_reply,
)
from millstream.protocol.record_batch import BatchHeader, check_produced

if TYPE_CHECKING:
    from millstream.broker.node import Broker

log = get_logger("millstream.broker")

NO_ACKS, LEADER_ACK, ALL_ACKS = 0, 1, -1
_ACKS = (NO_ACKS, LEADER_ACK, ALL_ACKS)

# What is appended in one go: partitions, and bytes of records. No request this small has that many.
_MANY_PARTITIONS = 200
_MANY_BYTES = 8 << 20
_SMALL_BYTES = 1024
# More records are opened one request at a time: the threads that do it are those that sync.
_MANY_RECORDS = 20_000

_Checked = tuple[PartitionOutcome, Partition, memoryview, BatchHeader]


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    produce = decode_produce(request, position, context.version)
    broker.metrics.produce_requests.value += 1
    if len(request) > _SMALL_BYTES and _is_long(produce):
        _begin_slices(broker, context, produce, len(request))
        return
    outcomes, checked = _check(broker, context, produce)
    if _any_opened(checked):
        if sum(header.record_count for *_, header in checked) > _MANY_RECORDS:
            _begin_slices(broker, context, produce, len(request))
            return
        _serve_opened(broker, context, produce, outcomes, checked)
    else:
        _answer(context, produce, outcomes, _append(broker, context, produce.acks, checked, None, outcomes))


def _is_long(produce: ProduceRequest) -> bool:
    """Whether others would have to wait: for many partitions, or for more bytes than are written in a moment."""
    return (
        sum(len(partitions) for _, partitions in produce.topics) > _MANY_PARTITIONS
        or sum(len(records or b"") for _, partitions in produce.topics for _, records in partitions)
        > _MANY_BYTES
    )


def _begin_slices(
    broker: "Broker", context: RequestContext, produce: ProduceRequest, size_bytes: int
) -> None:
    context.connection.block()
    # The buffer is reused as soon as this returns.
    copied = [
        TopicRecords(
            topic,
            [
                PartitionRecords(index, None if records is None else memoryview(bytearray(records)))
                for index, records in partitions
            ],
        )
        for topic, partitions in produce.topics
    ]
    owned = produce._replace(topics=copied)
    broker.spawn(_serve_in_slices(broker, context, owned, size_bytes), "large produce")


async def _serve_in_slices(
    broker: "Broker", context: RequestContext, produce: ProduceRequest, size_bytes: int
) -> None:
    """As so many smaller requests with one answer; the connection is blocked meanwhile, so order is kept."""
    connection = context.connection
    outcomes: list[PartitionOutcome] = []
    waiting: DelayedProduce | None = None
    held_bytes = size_bytes + OPENING_BYTES
    broker.server.memory.take(held_bytes)
    try:
        for topics in _slices(produce):
            await broker.long_work.pause()
            part, checked = _check(broker, context, produce._replace(topics=topics))
            outcomes += part
            if _any_opened(checked):
                converted = await broker.long_work.apart(_converter(broker, context, checked))
                checked = _kept(broker, context, checked, converted)
            waiting = _append(broker, context, produce.acks, checked, waiting, outcomes)
        _answer(context, produce, outcomes, waiting)
    except BaseException:
        # There will be no reply: without this the client would wait for it for ever.
        connection.close()
        raise
    finally:
        broker.server.memory.give_back(held_bytes)
        connection.unblock()


def _slices(produce: ProduceRequest) -> Iterator[list[TopicRecords]]:
    piece: list[TopicRecords] = []
    partitions_left, bytes_left = _MANY_PARTITIONS, _MANY_BYTES
    for topic, partitions in produce.topics:
        for partition in partitions:
            if partitions_left <= 0 or bytes_left <= 0:
                yield piece
                piece, partitions_left, bytes_left = [], _MANY_PARTITIONS, _MANY_BYTES
            if not piece or piece[-1].topic != topic:
                piece.append(TopicRecords(topic, []))
            piece[-1].partitions.append(partition)
            partitions_left -= 1
            bytes_left -= len(partition.records or b"")
    if piece:
        yield piece


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


def _any_opened(checked: list[_Checked]) -> bool:
    return any(must_open(partition.log.config, header) for _, partition, _, header in checked)


def _serve_opened(
    broker: "Broker",
    context: RequestContext,
    produce: ProduceRequest,
    outcomes: list[PartitionOutcome],
    checked: list[_Checked],
) -> None:
    """Batches that the topic's settings make us open are opened in a thread; the connection waits, so order is kept."""
    owned = [(out, partition, memoryview(bytes(view)), header) for out, partition, view, header in checked]
    held_bytes = sum(len(data) for _, _, data, _ in owned) + OPENING_BYTES
    broker.server.memory.take(held_bytes)
    context.connection.block()

    def done(converted: list[_Checked | KafkaError], error: BaseException | None) -> None:
        connection = context.connection
        broker.server.memory.give_back(held_bytes)
        try:
            if error is not None:
                raise error
            kept = _kept(broker, context, owned, converted)
            _answer(context, produce, outcomes, _append(broker, context, produce.acks, kept, None, outcomes))
        except Exception:
            log.exception("request failed", peer=connection.peer, api=context.api.name)
            connection.close()
        finally:
            connection.unblock()

    broker.workers.submit(_converter(broker, context, owned), done)


def _converter(
    broker: "Broker", context: RequestContext, owned: list[_Checked]
) -> Callable[[], list[_Checked | KafkaError]]:
    """For a thread: each batch as its topic wants it, or why it is refused."""
    limits = broker.opening_limits

    def convert() -> list[_Checked | KafkaError]:
        converted: list[_Checked | KafkaError] = []
        for outcome, partition, data, header in owned:
            config = partition.log.config
            try:
                view = data
                if must_open(config, header):
                    view = memoryview(open_and_convert(config, data, limits))
                converted.append((outcome, partition, view, check_produced(view, context.version)))
            except KafkaError as error:
                converted.append(error)
        return converted

    return convert


def _kept(
    broker: "Broker",
    context: RequestContext,
    owned: list[_Checked],
    converted: list[_Checked | KafkaError],
) -> list[_Checked]:
    ready: list[_Checked] = []
    for (outcome, *_), result in zip(owned, converted, strict=True):
        if isinstance(result, KafkaError):
            _fail(broker, context, outcome, result)
        else:
            ready.append(result)
    return ready


def _append(
    broker: "Broker",
    context: RequestContext,
    acks: int,
    checked: list[_Checked],
    waiting: "DelayedProduce | None",
    outcomes: list[PartitionOutcome],
) -> "DelayedProduce | None":
    """What the answer waits for, if it does."""
    now_ms = broker.clock.now_ms()
    for outcome, partition, records, header in checked:
        try:
            if broker.partitions.is_withheld(partition):
                partition.refuse(header, partition.cut_off())
            if acks == ALL_ACKS and partition.replication is not None:
                partition.require_enough_replicas(header)
            if header.producer_id >= 0:
                _admit(broker, partition, header, now_ms)
            appended = partition.append(records, header, now_ms)
        except KafkaError as error:
            _fail(broker, context, outcome, error)
            continue
        if not appended.duplicate:
            broker.count_messages_in(partition.topic, header.record_count)
        outcome.base_offset = appended.base_offset
        outcome.log_append_time_ms = appended.log_append_time_ms
        outcome.log_start_offset = partition.log.log_start_offset
        if acks == NO_ACKS or appended.last_offset < partition.high_watermark:
            continue
        by_all = acks == ALL_ACKS
        if partition.replication is not None and partition.is_acknowledged(
            appended.last_offset, by_all=by_all
        ):
            continue
        if waiting is None:
            waiting = DelayedProduce(broker, context.reply_later(), outcomes)
        waiting.wait_for(partition, appended.last_offset, outcome, by_all=by_all)
    return waiting


def _admit(broker: "Broker", partition: Partition, header: BatchHeader, now_ms: int) -> None:
    try:
        broker.producer_bounds.admit(partition.log.producers, header.producer_id, now_ms)
    except KafkaError as error:
        # What it has already sent behind this batch is refused too.
        partition.refuse(header, error)


def _answer(
    context: RequestContext,
    produce: ProduceRequest,
    outcomes: list[PartitionOutcome],
    waiting: "DelayedProduce | None",
) -> None:
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
