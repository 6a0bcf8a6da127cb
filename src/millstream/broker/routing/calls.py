"""Calls from a door of one node to another node, by value: a number, the caller, and the fields of the call.

Numbers are the wire format and are never reused; fields are only added at the end, with a default. A refusal says
whether nothing was done (`NotDone`), so that the call may be sent elsewhere.
"""

from typing import Any, Generic, TypeVar

import msgspec

from millstream.coordinator.decision import answer_type
from millstream.doors.caller import Caller
from millstream.doors.cluster import CoordinatorKind
from millstream.doors.partitions import Acks, Appended, Isolation, LogRead, OffsetAt, Offsets, Place
from millstream.doors.queues import Acquired, Settled, Settlement
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.queue_call import LookAtQueues, PeekAtQueue, Peeked, Purged, PurgeQueue, QueueRows
from millstream.protocol.wire import MalformedRequest

A_co = TypeVar("A_co", covariant=True)
A = TypeVar("A")


class NodeCall(msgspec.Struct, Generic[A_co], frozen=True, array_like=True):
    """The type parameter is the type of the answer."""


class Append(NodeCall[Appended], frozen=True, tag=1):
    place: Place
    batch: memoryview
    acks: Acks
    timeout_s: float


class Read(NodeCall[LogRead], frozen=True, tag=2):
    place: Place
    offset: int
    max_bytes: int
    max_wait_s: float
    isolation: Isolation
    topic_id: bytes = b""
    """Id of the topic that is meant: at the other node, another topic may have the name."""


class FindOffsets(NodeCall[Offsets], frozen=True, tag=3):
    place: Place
    topic_id: bytes = b""


class FindOffsetAt(NodeCall[OffsetAt | None], frozen=True, tag=4):
    place: Place
    timestamp_ms: int


class Ask(NodeCall[bytes], frozen=True, tag=5):
    """A request to a coordinator, and its answer, as `encode` writes them; the kind determines their types."""

    kind: CoordinatorKind
    key: str
    request: bytes
    timeout_s: float


class FindCoordinator(NodeCall[int], frozen=True, tag=6):
    """The partition of the internal topic that keeps the key; the topic is created if it does not exist."""

    kind: CoordinatorKind
    key: str


class Acquire(NodeCall[Acquired], frozen=True, tag=7):
    group: str
    member: str
    place: Place
    max_messages: int
    max_bytes: int
    max_wait_s: float
    max_held: int | None = None
    whole_batches: bool = False


class Settle(NodeCall[tuple[Settled, ...]], frozen=True, tag=8):
    group: str
    member: str
    place: Place
    settlements: tuple[Settlement, ...]
    together: bool = False


class ReleaseAll(NodeCall[None], frozen=True, tag=9):
    group: str
    member: str


class SubmitCommand(NodeCall[bytes], frozen=True, tag=10):
    """A metadata command and its result, as `command_codec` writes them."""

    command: bytes


class CreateTopicsFor(NodeCall[bytes], frozen=True, tag=11):
    """A CreateTopics command, with the cluster's defaults, if the caller may create the topics."""

    command: bytes


class FollowMetadata(NodeCall[bytes], frozen=True, tag=12):
    """The records that lead from an image sent before to the newest one; waits for a newer one."""

    sent: str
    max_wait_s: float


class AskAll(NodeCall[bytes], frozen=True, tag=14):
    """As `Ask`, for all partitions that the node coordinates; the answer has them by partition."""

    kind: CoordinatorKind
    request: bytes


class Look(NodeCall[QueueRows], frozen=True, tag=15):
    """The state of queues that the node leads."""

    request: LookAtQueues


class Peek(NodeCall[Peeked], frozen=True, tag=16):
    request: PeekAtQueue


class Purge(NodeCall[Purged], frozen=True, tag=17):
    request: PurgeQueue


class ReloadQueues(NodeCall[None], frozen=True, tag=18):
    group: str
    topic: str


class Cancel(NodeCall[None], frozen=True, tag=13):
    """The caller no longer waits for the answer to this call of the same connection."""

    correlation: int


AnyCall = (
    Append
    | Read
    | FindOffsets
    | FindOffsetAt
    | Ask
    | FindCoordinator
    | Acquire
    | Settle
    | ReleaseAll
    | SubmitCommand
    | CreateTopicsFor
    | FollowMetadata
    | AskAll
    | Look
    | Peek
    | Purge
    | ReloadQueues
    | Cancel
)


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    caller: Caller
    call: AnyCall


class _Refusal(msgspec.Struct, frozen=True, array_like=True):
    code: int
    message: str
    is_not_done: bool


encode = msgspec.msgpack.Encoder().encode
_envelope_decoder = msgspec.msgpack.Decoder(_Envelope)
_refusal_decoder = msgspec.msgpack.Decoder(_Refusal)
_answer_decoders: dict[type[NodeCall[Any]], msgspec.msgpack.Decoder[Any]] = {}


def encode_call(caller: Caller, call: NodeCall[Any]) -> bytes:
    return encode((caller, call))


def decode_call(data: bytes | memoryview) -> tuple[Caller, AnyCall]:
    try:
        envelope = _envelope_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"a call between nodes cannot be read: {error}") from error
    return envelope.caller, envelope.call


def encode_answer(answer: object) -> bytes:
    return b"\0" + encode(answer)


def encode_refusal(error: KafkaError) -> bytes:
    return b"\1" + encode(_Refusal(error.code, error.message, isinstance(error, NotDone)))


def decode_answer(call: NodeCall[A], data: bytes | memoryview) -> A:
    """The answer; raises the KafkaError with which the call was refused."""
    try:
        if data[0]:
            refusal = _refusal_decoder.decode(data[1:])
            kind = NotDone if refusal.is_not_done else KafkaError
            raise kind(ErrorCode(refusal.code), refusal.message)
        answer: A = _decoder_of(type(call)).decode(data[1:])
    except (msgspec.MsgspecError, IndexError, ValueError) as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"another node's answer cannot be read: {error}"
        ) from error
    return answer


def _decoder_of(call: type[NodeCall[Any]]) -> "msgspec.msgpack.Decoder[Any]":
    decoder = _answer_decoders.get(call)
    if decoder is None:
        decoder = msgspec.msgpack.Decoder(answer_type(call))
        _answer_decoders[call] = decoder
    return decoder
