"""What goes through a client: a message to write, and a message as it was read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a reader sees it. Not every client shows the type of a timestamp: None where it does not."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    log_append_time: bool | None = None

    @property
    def content(self) -> Message:
        return Message(self.value, self.key, self.headers)


class ProduceFailed(Exception):
    """A client's report that a message was not written: the name of Kafka's error, or of the client's own."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Client(Protocol):
    name: str

    def write(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        partition: int = 0,
    ) -> list[int]:
        """Write in order and return the offsets the client was told; ProduceFailed when one was refused."""
        ...

    def read(self, topic: str, *, partition: int = 0, start: int | None = None) -> list[Stored]:
        """Everything from `start`, or from the log's start, to the end the partition has now."""
        ...

    def close(self) -> None: ...


# Topics may take 20 MB; clients refuse far less by themselves unless told otherwise.
LARGEST_REQUEST_BYTES = 32 << 20
PATIENCE_S = 90.0
