"""The interface of a coordinator's state machine, between deciding and acting."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, get_args

import msgspec

from millstream.protocol.errors import ErrorCode, KafkaError, NotDone

Q = TypeVar("Q")
R = TypeVar("R")
A_co = TypeVar("A_co", covariant=True)
E = TypeVar("E")


class Request(msgspec.Struct, Generic[A_co], frozen=True, tag=True):
    """A request to a coordinator; the type parameter is its answer: `class Join(Request[Joined])`.

    Nodes use the class name on the wire, so it must not change.
    """


def answer_type(request: type[Any]) -> Any:
    """The type of the answers to requests of this class, as msgspec can decode it."""
    for base in getattr(request, "__orig_bases__", ()):
        for argument in get_args(base):
            return argument
    raise TypeError(f"{request.__name__} does not say what it is answered with: Request[...]")


class Reply(msgspec.Struct, Generic[A_co], frozen=True):
    """The answer to the request that came with `token`, possibly many events ago."""

    token: int
    answer: A_co | KafkaError


class Decision(msgspec.Struct, Generic[R, A_co, E], frozen=True):
    """Records to make durable; once they are, the replies are sent and the effects started.

    A request whose token is not among the replies is deferred: a later decision carries its reply.
    The records of an atomic decision share one batch, so a crash keeps all of them or none.
    An effect (a dead letter, a will, a marker) is a value that the coordinator's host carries out; its result comes
    back as a request. Effects are not restarted after a crash: the records show that they are pending, and `loaded`
    decides on them again.
    """

    records: Sequence[R] = ()
    replies: Sequence[Reply[A_co]] = ()
    atomic: bool = True
    effects: Sequence[E] = ()


class StateMachine(ABC, Generic[Q, R, A_co, E]):
    """One partition's coordinator. State that must survive a restart changes only in `replay`.

    `handle`, `loaded` and `on_time` replay the records they decide before they return, so the next decision
    already sees them; if the records cannot be made durable the machine is thrown away and built again from
    the log.
    """

    @abstractmethod
    def handle(self, request: Q, token: int, now_ms: int) -> Decision[R, A_co, E]:
        """Decide one request. A `KafkaError` refuses it and means that nothing was changed."""

    @abstractmethod
    def replay(self, record: R) -> None: ...

    @abstractmethod
    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """The record's key and value; a value of None is a tombstone."""

    @abstractmethod
    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a kind of record that only newer versions know; it is skipped."""

    def loaded(self, _now_ms: int, /) -> Decision[R, A_co, E]:
        """Called once, after the last record of the log was replayed and before the first request."""
        return Decision()

    def next_deadline(self) -> int | None:
        """When `on_time` wants to be called next; asked again after every event."""
        return None

    def on_time(self, _now_ms: int, /) -> Decision[R, A_co, E]:
        return Decision()

    def stored(self, _record: R, _offset: int, /) -> None:
        """Called for each record in the log, in order: when it is loaded, or once its append is durable."""

    def needed_from(self) -> int | None:
        """The log below this offset may be deleted; None keeps all of it. Called after every append."""
        return None


class CoordinatorLog(Protocol):
    """The log of one partition of an internal topic, as far as a coordinator needs it."""

    def append(self, batch: bytes) -> Awaitable[int]:
        """Resolves with the last offset when the batch is as durable and replicated as the topic asks."""
        ...

    def read_from(self, offset: int) -> Iterator[bytes | memoryview]:
        """Whole record batches in order from `offset` to the end; -1 means the start of the log."""
        ...

    def settled(self) -> Awaitable[None]:
        """Resolves when everything now in the log is as durable and replicated as the topic asks."""
        ...

    def trim(self, before: int) -> Awaitable[None]:
        """Delete the log below the offset. KafkaError or OSError when the new start cannot be stored."""
        ...


_TOLD_AS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


class NotDecided(NotDone):
    """Refused before a decision was made."""


def is_expected(error: BaseException) -> bool:
    """Whether an append failed in a way that is normal while nodes come and go; anything else is a fault."""
    return isinstance(error, KafkaError) and error.code in _TOLD_AS


def append_failure(error: BaseException) -> KafkaError:
    if isinstance(error, KafkaError):
        return KafkaError(_TOLD_AS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)
    if isinstance(error, OSError):
        return KafkaError(ErrorCode.NOT_COORDINATOR, f"the coordinator's log cannot be written: {error}")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's log cannot be written")
