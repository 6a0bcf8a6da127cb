"""Millstream's own requests about queues, for its client and its command line: what Kafka's share groups cannot say.

A request and its answer are msgpack. Taking and settling messages may be asked of any node; looking at queues and
purging them is for the node that leads the partition, and tells only of what is led there.
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
    """Batches as they are stored; what is in no range is not for the consumer."""

    partition: int
    ranges: tuple[QueueRange, ...]
    batches: bytes
    until_ms: int
    lock_ms: int = 15_000
    """How long the locks last, for who has another clock; an older node does not say."""
    incarnation: int = 0
    """Of the topic, for settling: another may be made under its name. 0 where an older node does not say."""


class Taken(msgspec.Struct, frozen=True):
    places: tuple[TakenFrom, ...]


class SettledRange(msgspec.Struct, frozen=True, array_like=True):
    """`outcome` by Kafka's numbers, or 1000: it was never delivered, so that time does not count.

    A `delay_ms` of 0 leaves it to the group's settings.
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
    """An error and its words for each range, in order."""

    outcomes: tuple[tuple[int, str], ...]


class ReleaseMember(msgspec.Struct, frozen=True, tag="release"):
    group: str
    member: str


class Released(msgspec.Struct, frozen=True):
    pass


class LookAtQueues(msgspec.Struct, frozen=True, tag="look"):
    """Those of this node, of one group and one topic where these are not empty."""

    group: str = ""
    topic: str = ""


class QueueRow(msgspec.Struct, frozen=True):
    group: str
    topic: str
    partition: int
    start: int
    end: int
    depth: int
    in_flight: int
    runs: int
    oldest_ms: int
    """When the first message that is not settled was written; -1 where there is none."""
    delivered: int
    redelivered: int
    accepted: int
    dead_letters: int
    given_up: int


class QueueRows(msgspec.Struct, frozen=True):
    queues: tuple[QueueRow, ...]


class PeekAtQueue(msgspec.Struct, frozen=True, tag="peek"):
    """Messages that are not settled, from an offset on; nothing is locked."""

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
    """Give up what waits; what is out for delivery is not touched."""

    group: str
    topic: str
    partition: int


class Purged(msgspec.Struct, frozen=True):
    messages: int


QueueRequest = TakeMessages | SettleMessages | ReleaseMember | LookAtQueues | PeekAtQueue | PurgeQueue
Answer = TypeVar("Answer", bound=msgspec.Struct)

DEAD_LETTER_PREFIX = "__dlq.errors."
"""Of the headers that tell of a dead letter what happened to it, as in Apache Kafka 4.4."""
RECORD_MISSING = DEAD_LETTER_PREFIX + "record.missing"
"""Our own, of a letter that only names its record: why it does not hold it."""
STAYS = "it does not say where it came from, or does not hold its record"
"""Why a dead letter cannot be redriven."""


def source_of(headers: Headers) -> str | None:
    """The topic that a dead letter can go back to; None where it STAYS."""
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
    """KafkaError INVALID_REQUEST for anything else."""
    try:
        return _requests.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no request about queues: {error}") from None


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
