"""Millstream's own requests about queues, for its client and its command line, beyond Kafka's share groups.

Requests and answers are msgpack. Any node takes requests to receive and settle messages; requests to inspect and purge
queues go to the partition's leader, which answers only for partitions that it leads.
"""

from typing import TypeVar

import msgspec

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.records import Headers


class QueueRange(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    count: int


class TakeMessages(msgspec.Struct, frozen=True, tag="take"):
    group: str
    member: str
    topic: str
    max_messages: int
    max_bytes: int = 1 << 20
    max_wait_ms: int = 0
    max_held: int | None = None


class TakenFrom(msgspec.Struct, frozen=True):
    """Batches as stored; records outside the ranges are not for the consumer."""

    partition: int
    ranges: tuple[QueueRange, ...]
    batches: bytes
    until_ms: int
    lock_ms: int = 15_000
    """How long the locks last, as a duration because clocks differ; older nodes do not send it."""
    incarnation: int = 0
    """Of the topic, for settling: another may be made under its name. Older nodes do not send it."""


class Taken(msgspec.Struct, frozen=True):
    places: tuple[TakenFrom, ...]


class SettledRange(msgspec.Struct, frozen=True, array_like=True):
    """`outcome`: Kafka's number, or 1000 for messages that were never delivered, so that the attempt does not count.

    With a `delay_ms` of 0 the group's settings apply.
    """

    first: int
    last: int
    outcome: int
    delay_ms: int = 0
    reason: str = ""
    incarnation: int = 0


class SettleMessages(msgspec.Struct, frozen=True, tag="settle"):
    group: str
    member: str
    topic: str
    partition: int
    ranges: tuple[SettledRange, ...]


class SettledAll(msgspec.Struct, frozen=True):
    """Error code and message for each range, in order."""

    outcomes: tuple[tuple[int, str], ...]


class ReleaseMember(msgspec.Struct, frozen=True, tag="release"):
    group: str
    member: str


class Released(msgspec.Struct, frozen=True):
    pass


class LookAtQueues(msgspec.Struct, frozen=True, tag="look"):
    """Asks for this node's queues; a non-empty group or topic restricts them."""

    group: str = ""
    topic: str = ""


class QueueRow(msgspec.Struct, frozen=True):
    group: str
    topic: str
    partition: int
    start: int
    end: int
    depth: int
    oldest_ms: int
    """When the first unsettled message was written; -1 if there is none."""
    in_flight: int = 0
    runs: int = 0
    # Counted since the queue was loaded.
    delivered: int = 0
    redelivered: int = 0
    accepted: int = 0
    dead_letters: int = 0
    given_up: int = 0
    locks_ended: int = 0
    expired: int = 0


class QueueRows(msgspec.Struct, frozen=True):
    queues: tuple[QueueRow, ...]


class PeekAtQueue(msgspec.Struct, frozen=True, tag="peek"):
    """Asks for unsettled messages from an offset on, without locking them."""

    group: str
    topic: str
    partition: int
    offset: int = 0
    max_messages: int = 10


class PeekedRun(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    state: str
    count: int
    due_ms: int
    owner: str


class Peeked(msgspec.Struct, frozen=True):
    runs: tuple[PeekedRun, ...]
    batches: bytes


class PurgeQueue(msgspec.Struct, frozen=True, tag="purge"):
    """Drop waiting messages; those out for delivery are kept."""

    group: str
    topic: str
    partition: int


class Purged(msgspec.Struct, frozen=True):
    messages: int


QueueRequest = TakeMessages | SettleMessages | ReleaseMember | LookAtQueues | PeekAtQueue | PurgeQueue
Answer = TypeVar("Answer", bound=msgspec.Struct)

DEAD_LETTER_PREFIX = "__dlq.errors."
"""The prefix of headers that describe a dead letter, as in Apache Kafka 4.4."""
RECORD_MISSING = DEAD_LETTER_PREFIX + "record.missing"
"""Our own header: why a dead letter only names its record instead of containing it."""
STAYS = "it does not say where it came from, or does not hold its record"
"""Why a dead letter cannot be redriven."""
SOURCE_GONE_MS = 60_000
"""After what time a dead letter whose topic is gone may be redriven again: somebody may have made the topic again."""


def source_of(headers: Headers) -> str | None:
    """The topic that a dead letter can be redriven to; None if it cannot."""
    found = dict(headers)
    topic = found.get(f"{DEAD_LETTER_PREFIX}topic")
    return None if not topic or RECORD_MISSING in found else topic.decode(errors="replace")


class _Reply(msgspec.Struct, frozen=True):
    error: int = 0
    message: str = ""
    answer: msgspec.Raw = msgspec.Raw(b"\xc0")


_encoder = msgspec.msgpack.Encoder()
_requests: "msgspec.msgpack.Decoder[QueueRequest]" = msgspec.msgpack.Decoder(QueueRequest)
_replies = msgspec.msgpack.Decoder(_Reply)


def encode_request(request: QueueRequest) -> bytes:
    return _encoder.encode(request)


def decode_request(data: memoryview) -> QueueRequest:
    """KafkaError INVALID_REQUEST for invalid bytes."""
    try:
        return _requests.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unreadable queue request: {error}") from None


def encode_reply(answer: msgspec.Struct | KafkaError) -> bytes:
    if isinstance(answer, KafkaError):
        return _encoder.encode(_Reply(answer.code, answer.message))
    return _encoder.encode(_Reply(answer=msgspec.Raw(_encoder.encode(answer))))


def decode_reply(data: bytes, kind: type[Answer]) -> Answer:
    """The answer, or the KafkaError with which it was refused."""
    reply = _replies.decode(data)
    if reply.error:
        raise KafkaError(ErrorCode(reply.error), reply.message)
    return msgspec.msgpack.decode(reply.answer, type=kind)
