"""Produce, versions 0 to 13, served from 3: validate, append, acknowledge when records are as durable as requested.

Not done: transactions (a transactional batch is refused), the message formats before Kafka 0.11, and naming the current
leader in the reply.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from millstream.broker.api.call import LATER, NO_REPLY, Call
from millstream.broker.partitions.appends import Appends
from millstream.broker.partitions.opened_batches import BatchOpener, must_open, open_and_convert
from millstream.broker.partitions.partition import Partition
from millstream.broker.server.replies import Delayed
from millstream.observability.metrics import Counter
from millstream.protocol.api import PRODUCE_SERVED_FROM
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.produce import PartitionOutcome, PartitionRecords, ProduceRequest, TopicRecords
from millstream.protocol.record_batch import BatchHeader, check_produced
from millstream.protocol.records import InvalidRecordsError

NO_ACKS, LEADER_ACK, ALL_ACKS = 0, 1, -1
_ACKS = (NO_ACKS, LEADER_ACK, ALL_ACKS)

# Partitions, and bytes of records, that are appended in one turn.
_MANY_PARTITIONS = 200
_MANY_BYTES = 8 << 20
# Larger requests are converted one at a time: the same threads also sync.
_MANY_RECORDS = 20_000

_Checked = tuple[PartitionOutcome, Partition, memoryview, BatchHeader]
_Converted = list[_Checked | KafkaError]


class Produce:
    def __init__(self, appends: Appends, opener: BatchOpener, delayed: Delayed, requests: Counter) -> None:
        self._appends = appends
        self._opener = opener
        self._delayed = delayed
        self._requests = requests

    def handle(self, produce: ProduceRequest, call: Call) -> Any:
        self._requests.value += 1
        if _is_long(produce):
            return self._in_slices(_owned(produce), call)
        outcomes, checked = self._check(produce, call)
        if _any_opened(checked):
            if sum(header.record_count for *_, header in checked) > _MANY_RECORDS:
                return self._in_slices(_owned(produce), call)
            # The buffer is reused as soon as this returns.
            kept = [
                (out, partition, memoryview(bytes(view)), header) for out, partition, view, header in checked
            ]
            return self._opened(produce, call, outcomes, kept)
        return _answer(produce, outcomes, self._append(produce.acks, call, checked, None, outcomes))

    async def _in_slices(self, produce: ProduceRequest, call: Call) -> Any:
        """Handle the request as several smaller ones with one answer."""
        outcomes: list[PartitionOutcome] = []
        waiting: DelayedProduce | None = None
        with self._opener.held(_size_of(produce)):
            for topics in _slices(produce):
                await self._opener.long_work.pause()
                part, checked = self._check(produce._replace(topics=topics), call)
                outcomes += part
                if _any_opened(checked):
                    checked = await self._open(call, checked, is_long=True)
                waiting = self._append(produce.acks, call, checked, waiting, outcomes)
        return _answer(produce, outcomes, waiting)

    async def _opened(
        self, produce: ProduceRequest, call: Call, outcomes: list[PartitionOutcome], checked: list[_Checked]
    ) -> Any:
        with self._opener.held(sum(len(view) for _, _, view, _ in checked)):
            kept = await self._open(call, checked, is_long=False)
        return _answer(produce, outcomes, self._append(produce.acks, call, kept, None, outcomes))

    def _check(self, produce: ProduceRequest, call: Call) -> tuple[list[PartitionOutcome], list[_Checked]]:
        """An outcome for each partition, and the batches that may be appended."""
        outcomes: list[PartitionOutcome] = []
        checked: list[_Checked] = []
        version, find = call.version, self._appends.find
        for topic, partitions in produce.topics:
            for index, records in partitions:
                outcome = PartitionOutcome(topic, index)
                outcomes.append(outcome)
                try:
                    if version < PRODUCE_SERVED_FROM:
                        raise KafkaError(
                            ErrorCode.UNSUPPORTED_VERSION, f"produce version {version} is not served"
                        )
                    if produce.acks not in _ACKS:
                        raise KafkaError(
                            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {produce.acks}; 0, 1 and -1 are taken"
                        )
                    partition = find(topic, index)
                    if records is None:
                        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition has no records")
                    header = check_produced(records, version)
                    if header.is_transactional:
                        raise KafkaError(
                            ErrorCode.INVALID_TXN_STATE, "no transaction is open for this producer"
                        )
                except KafkaError as error:
                    self.fail(call, outcome, error)
                    continue
                checked.append((outcome, partition, records, header))
        return outcomes, checked

    async def _open(self, call: Call, checked: list[_Checked], *, is_long: bool) -> list[_Checked]:
        """Each batch converted as its topic requires, without refused ones."""
        opened = await self._opener.run(self._converter(checked, call.version), is_long=is_long)
        ready: list[_Checked] = []
        for (outcome, *_), result in zip(checked, opened, strict=True):
            if isinstance(result, KafkaError):
                self.fail(call, outcome, result)
            else:
                ready.append(result)
        return ready

    def _converter(self, checked: list[_Checked], version: int) -> Callable[[], _Converted]:
        """The conversion of batches, to be run in a thread."""
        limits = self._opener.limits

        def convert() -> _Converted:
            converted: _Converted = []
            for outcome, partition, data, header in checked:
                config = partition.log.config
                try:
                    view = data
                    if must_open(config, header):
                        view = memoryview(open_and_convert(config, data, limits))
                    converted.append((outcome, partition, view, check_produced(view, version)))
                except KafkaError as error:
                    converted.append(error.as_value())
            return converted

        return convert

    def _append(
        self,
        acks: int,
        call: Call,
        checked: list[_Checked],
        waiting: "DelayedProduce | None",
        outcomes: list[PartitionOutcome],
    ) -> "DelayedProduce | None":
        """Append the batches; returns what the answer waits for, if anything."""
        by_all = acks == ALL_ACKS
        for outcome, partition, records, header in checked:
            try:
                appended = self._appends.append(partition, records, header, by_all=by_all)
            except KafkaError as error:
                self.fail(call, outcome, error)
                continue
            outcome.base_offset = appended.base_offset
            outcome.log_append_time_ms = appended.log_append_time_ms
            outcome.log_start_offset = partition.log.log_start_offset
            if acks == NO_ACKS or partition.is_acknowledged(appended.last_offset, by_all=by_all):
                continue
            if waiting is None:
                waiting = DelayedProduce(self, self._delayed, call, outcomes)
            waiting.wait_for(partition, appended.last_offset, outcome, by_all=by_all)
        return waiting

    def fail(self, call: Call, outcome: PartitionOutcome, error: KafkaError) -> None:
        outcome.error = error.code
        outcome.message = error.message
        outcome.base_offset = -1
        if isinstance(error, InvalidRecordsError):
            outcome.record_errors = error.records
        call.count_error(error.code)
        self._appends.failed(error)


class DelayedProduce:
    """A produce request whose records are written but not yet as durable as their topics ask."""

    __slots__ = ("_call", "_delayed", "_outcomes", "_produce", "_reply", "_several", "_timer", "_waiting")

    def __init__(
        self, produce: Produce, delayed: Delayed, call: Call, outcomes: list[PartitionOutcome]
    ) -> None:
        self._produce = produce
        self._delayed = delayed
        self._call = call
        self._reply = call.reply_later()
        self._outcomes = outcomes
        self._waiting: dict[Partition, list[PartitionOutcome]] = {}
        self._several: dict[Partition, int] | None = None
        """Partitions that are named more than once, with how many of their batches are not durable yet."""
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(
        self, partition: Partition, last_offset: int, outcome: PartitionOutcome, *, by_all: bool
    ) -> None:
        partition.add_waiter(last_offset, self, by_all=by_all)
        outcomes = self._waiting.get(partition)
        if outcomes is None:
            self._waiting[partition] = [outcome]
            return
        outcomes.append(outcome)
        self._several = self._several or {}
        self._several[partition] = len(outcomes)

    def start_timer(self, timeout_ms: int) -> None:
        if not self._waiting:
            self._reply.answer(self._outcomes)
            return
        self._delayed.produces += 1
        self._timer = self._delayed.later(max(timeout_ms, 0) / 1000, self._timed_out)

    def acknowledged(self, partition: Partition, error: KafkaError | None) -> None:
        if error is None and self._several and self._several.get(partition, 0) > 1:
            self._several[partition] -= 1
            return
        outcomes = self._waiting.pop(partition, None)
        if outcomes is None:
            return
        if error is not None:
            self._fail_all(outcomes, error)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._delayed.produces -= 1
            self._reply.answer(self._outcomes)

    def _timed_out(self) -> None:
        late = KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            "the records were not on disk, or not at enough replicas, within the request's timeout",
        )
        for outcomes in self._waiting.values():
            self._fail_all(outcomes, late)
        self._waiting.clear()
        self._delayed.produces -= 1
        self._reply.answer(self._outcomes)

    def _fail_all(self, outcomes: list[PartitionOutcome], error: KafkaError) -> None:
        for outcome in outcomes:
            self._produce.fail(self._call, outcome, error)


def _answer(produce: ProduceRequest, outcomes: list[PartitionOutcome], waiting: DelayedProduce | None) -> Any:
    if waiting is not None:
        waiting.start_timer(produce.timeout_ms)
        return LATER
    if produce.acks != NO_ACKS:
        return outcomes
    failed = next((outcome for outcome in outcomes if outcome.error), None)
    if failed is not None:
        # There is no reply to acks=0; a closed connection is the only way to say that something went wrong.
        raise KafkaError(failed.error, failed.message or "")
    return NO_REPLY


def _is_long(produce: ProduceRequest) -> bool:
    """Whether the request would hold up others: many partitions, or many bytes."""
    topics = produce.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return len(topics[0].partitions[0].records or b"") > _MANY_BYTES
    return sum(len(each.partitions) for each in topics) > _MANY_PARTITIONS or _size_of(produce) > _MANY_BYTES


def _size_of(produce: ProduceRequest) -> int:
    return sum(len(records or b"") for _, partitions in produce.topics for _, records in partitions)


def _any_opened(checked: list[_Checked]) -> bool:
    for _, partition, _, header in checked:  # noqa: SIM110 - a generator costs every request more
        if must_open(partition.log.config, header):
            return True
    return False


def _owned(produce: ProduceRequest) -> ProduceRequest:
    """A copy: the read buffer is reused as soon as the request is handled."""
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
    return produce._replace(topics=copied)


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
