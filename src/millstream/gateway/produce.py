"""/produce: sends a message or a batch to the partitions' leaders, and reports the outcome of each message."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from millstream.config.proxy_settings import ProxySettings
from millstream.doors import (
    Appended,
    Caller,
    Durability,
    Message,
    Messages,
    Place,
    QuotaKind,
    TopicImage,
    size_of,
)
from millstream.gateway.bodies import Outgoings, read_body
from millstream.gateway.brokers import Brokers
from millstream.gateway.metrics import GatewayMetrics
from millstream.gateway.places import MessageId, Turns
from millstream.gateway.problems import HttpQuotas, busy, problem_of, rendered
from millstream.gateway.queries import partition_in, query_of
from millstream.gateway.topics import Topics
from millstream.http.messages import Problem, Request, Response, json_response
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone

_log = get_logger("millstream.gateway")

_APPEND_BYTES = 512 * 1024
_SHORT_BODY_BYTES = 128 * 1024
_WEAKEST_FIRST = list(Durability)


class _Part(msgspec.Struct):
    """The part of a batch in one append; `numbers` are the positions of its messages in the batch."""

    numbers: list[int]
    messages: list[Message]
    size: int = 0


class Produce:
    def __init__(
        self,
        messages: Messages,
        topics: Topics,
        brokers: Brokers,
        turns: Turns,
        quotas: HttpQuotas,
        settings: ProxySettings,
        metrics: GatewayMetrics,
    ) -> None:
        self._messages = messages
        self._topics = topics
        self._brokers = brokers
        self._turns = turns
        self._quotas = quotas
        self._settings = settings
        self._metrics = metrics

    async def handle(self, request: Request, caller: Caller) -> Response:
        query, is_legacy = query_of(request), self._settings.legacy
        topic = query.get("topic", "")
        if is_legacy and not (topic and query.get("partition")):
            raise Problem(400, "topic and partition required")
        if not topic:
            raise Problem(400, "topic required")
        wrong = "bad partition" if is_legacy else "invalid partition"
        partition = partition_in(query, wrong)
        found = await _read(request)
        key = query["key"].encode() if query.get("key") else None
        self._quotas.check(caller, QuotaKind.PRODUCE)
        image = self._topics.known(topic) or await self._topics.find(caller, topic)
        if not found.messages:
            raise Problem(400, "bad body: the batch is empty")
        if partition is not None and partition >= len(image.partitions):
            raise Problem(400, wrong)
        if found.is_batch:
            return await self._send_batch(request, caller, image, found, partition, key, wrong)
        message = found.messages[0]
        asked = partition if found.partitions is None else found.partitions[0]
        place, message = self._place(image, message, asked, key, wrong)
        appended = await self._send(caller, place, [message], size_of(message))
        return json_response(_answer(place, appended, appended.base_offset))

    def _place(
        self, topic: TopicImage, message: Message, asked: int | None, key: bytes | None, wrong: str
    ) -> tuple[Place, Message]:
        count = len(topic.partitions)
        if asked is not None and not 0 <= asked < count:
            raise Problem(400, wrong)
        if message.key is None and key is not None:
            message = Message(key, message.value, message.headers, message.timestamp_ms)
        return Place(topic.name, self._turns.choose(topic.name, count, asked, message.key)), message

    async def _send_batch(
        self,
        request: Request,
        caller: Caller,
        topic: TopicImage,
        found: Outgoings,
        partition: int | None,
        key: bytes | None,
        wrong: str,
    ) -> Response:
        """Messages without key and partition go to one partition, in appends small enough for any topic."""
        rest = partition if partition is not None else self._turns.turn(topic.name, len(topic.partitions))
        rest_place = Place(topic.name, rest)
        parts: dict[Place, list[_Part]] = {}
        for number, message in enumerate(found.messages):
            place, asked = rest_place, None if found.partitions is None else found.partitions[number]
            if asked is not None or key is not None or message.key is not None:
                asked = partition if asked is None else asked
                if asked is not None and not 0 <= asked < len(topic.partitions):
                    raise Problem(400, f"{wrong}: message {number} asks for {asked}")
                place, message = self._place(topic, message, asked, key, wrong)
            size = size_of(message)
            several = parts.get(place)
            if several is None:
                several = parts[place] = [_Part([], [])]
            elif several[-1].size + size > _APPEND_BYTES:
                several.append(_Part([], []))
            part = several[-1]
            part.size += size
            part.numbers.append(number)
            part.messages.append(message)
        appends = [(place, part) for place, several in parts.items() for part in several]
        sent = await asyncio.gather(
            *(self._send(caller, place, part.messages, part.size) for place, part in appends),
            return_exceptions=True,
        )
        ids: list[str | None] = [None] * len(found.messages)
        problem: Problem | None = None
        weakest = len(_WEAKEST_FIRST) - 1
        for (place, part), outcome in zip(appends, sent, strict=True):
            if isinstance(outcome, Appended):
                weakest = min(weakest, _WEAKEST_FIRST.index(outcome.durability))
                start = f"{MessageId(place, 0)}"[:-1]
                for offset, number in enumerate(part.numbers, outcome.base_offset):
                    ids[number] = f"{start}{offset}"
            elif isinstance(outcome, Problem):
                problem = outcome
            else:
                raise outcome
        if problem is not None:
            return rendered(problem, request, {"ids": ids})
        return json_response(
            {"ids": ids, "topic": topic.name, "count": len(ids), "durability": _WEAKEST_FIRST[weakest].value}
        )

    async def _send(self, caller: Caller, place: Place, messages: Sequence[Message], size: int) -> Appended:
        metrics = self._metrics
        if metrics.in_flight_bytes.value + size > self._settings.max_in_flight:
            metrics.shed.labels("in flight").value += 1
            raise busy("too many messages are on their way")
        metrics.in_flight_bytes.value += size
        try:
            broker = await self._brokers.ready(place, size)
            if _log.debug_enabled:
                _log.debug(
                    "routed", place=str(place), broker=self._brokers.url(broker), messages=len(messages)
                )
            try:
                appended = await self._messages.send(
                    caller,
                    place,
                    messages,
                    timeout_s=self._settings.request_timeout / 1000,
                    patience_s=self._settings.failover_wait / 1000,
                )
            except KafkaError as error:
                self._brokers.failed(broker, error)
                raise self._problem(error, place) from error
            except BaseException:
                self._brokers.abandoned(broker)
                raise
        finally:
            metrics.in_flight_bytes.value -= size
        self._brokers.succeeded(broker)
        self._quotas.charge(caller, QuotaKind.PRODUCE, size)
        metrics.produced.value += len(messages)
        return appended

    def _problem(self, error: KafkaError, place: Place) -> Problem:
        problem = problem_of(error)
        if error.code is ErrorCode.POLICY_VIOLATION:  # queue.max.depth
            problem = busy(f"the queue is full: {error.message}")
        if problem.status >= 500:
            _log.warning("delivery failed", place=str(place), error=error.code.name, reason=str(error))
            if error.code is ErrorCode.LEADER_NOT_AVAILABLE and self._brokers.healthy:
                problem = busy(f"partition {place} has no leader yet")
            elif error.code is ErrorCode.KAFKA_STORAGE_ERROR and isinstance(error, NotDone):
                problem = busy(f"not stored: {error.message}")  # a full disk, say
            if self._settings.legacy:
                return Problem(500, f"enqueue failed: {problem}", problem.headers)
        return problem


async def _read(request: Request) -> Outgoings:
    """Reads a long body in a thread, so that it does not block the loop."""
    body, content_type = request.body, request.header("content-type")
    if len(body) <= _SHORT_BODY_BYTES:
        return read_body(body, content_type)
    return await asyncio.to_thread(read_body, body, content_type)


def _answer(place: Place, appended: Appended, offset: int) -> dict[str, Any]:
    return {
        "id": str(MessageId(place, offset)),
        "topic": place.topic,
        "partition": place.partition,
        "offset": offset,
        "durability": appended.durability.value,
    }
