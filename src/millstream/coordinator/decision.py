"""What a coordinator's state machine takes and gives: the seam between deciding and acting."""

from collections.abc import Awaitable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from millstream.protocol.errors import KafkaError

Q_contra = TypeVar("Q_contra", contravariant=True)
R = TypeVar("R")
A_co = TypeVar("A_co", covariant=True)


class Request(msgspec.Struct, Generic[A_co], frozen=True, tag=True):
    """What a coordinator can be asked, and by its type parameter what it answers: `class Join(Request[Joined])`.

    The name of its class is what it is called between nodes, so it stays.
    """


class Reply(msgspec.Struct, Generic[A_co], frozen=True):
    """The answer to the request that came with `token`, possibly many events ago."""

    token: int
    answer: A_co | KafkaError


class Decision(msgspec.Struct, Generic[R, A_co], frozen=True):
    """Records to make durable and replies that may leave once they are.

    A request whose token is not among the replies is deferred: a later decision carries its reply.
    The records of an atomic decision share one batch, so a crash keeps all of them or none.
    """

    records: Sequence[R] = ()
    replies: Sequence[Reply[A_co]] = ()
    atomic: bool = True


class StateMachine(Protocol[Q_contra, R, A_co]):
    """One partition's coordinator. State that must survive a restart changes only in `replay`.

    `handle`, `loaded` and `on_time` replay the records they decide before they return, so the next decision
    already sees them; if the records cannot be made durable the machine is thrown away and built anew from
    the log.
    """

    def handle(self, request: Q_contra, token: int, now_ms: int) -> Decision[R, A_co]:
        """Decide one request. A `KafkaError` refuses it and means that nothing was changed."""
        ...

    def replay(self, record: R) -> None: ...

    def loaded(self, now_ms: int) -> Decision[R, A_co]:
        """Called once, after the last record of the log was replayed and before the first request."""
        ...

    def next_deadline(self) -> int | None:
        """When `on_time` wants to be called next; asked again after every event."""
        ...

    def on_time(self, now_ms: int) -> Decision[R, A_co]: ...

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """The record's key and value; a value of None is a tombstone."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a kind of record that only a newer version knows; it is skipped."""
        ...


class CoordinatorLog(Protocol):
    """The log of one partition of an internal topic, as far as a coordinator needs it."""

    def append(self, batch: bytes) -> Awaitable[int]:
        """Resolves with the last offset when the batch is as durable and replicated as the topic asks."""
        ...

    def read_from(self, offset: int) -> Iterator[bytes | memoryview]:
        """Whole record batches in order from `offset` to the end; -1 means the start of the log."""
        ...

    def settled(self) -> Awaitable[None]:
        """Resolves when all that is in the log by now is as durable and replicated as the topic asks."""
        ...
