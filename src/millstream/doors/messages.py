"""Sending single messages from any door."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from millstream.doors.caller import Caller
from millstream.doors.partitions import Acks, Appended, Place
from millstream.protocol.records import Headers


class Message(msgspec.Struct, frozen=True, gc=False):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = -1
    """-1: the time of sending."""


# Lengths, deltas and counts of a message without headers, and of one header.
_MESSAGE_OVERHEAD_BYTES = 32
_HEADER_OVERHEAD_BYTES = 10


def size_of(message: Message) -> int:
    """An upper bound of its size in a batch."""
    size = _MESSAGE_OVERHEAD_BYTES + len(message.key or b"") + len(message.value or b"")
    for name, value in message.headers:
        size += _HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"")
    return size


class Messages(Protocol):
    async def send(
        self,
        caller: Caller,
        place: Place,
        messages: Sequence[Message],
        *,
        acks: Acks = Acks.ALL,
        timeout_s: float = 30.0,
        patience_s: float | None = None,
    ) -> Appended:
        """Append the messages together, in order; `base_offset` is the offset of the first.

        Messages that were refused and are not in the log are retried for `patience_s`, by default `timeout_s`.

        Messages of all doors to a partition in one turn of the loop share a batch. KafkaErrors as for
        `PartitionAccess.append`; MESSAGE_TOO_LARGE if they do not fit into one batch of the topic.
        """
        ...
