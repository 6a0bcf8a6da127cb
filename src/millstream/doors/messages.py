"""Send messages that come one by one, from any door."""

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
    """-1: when it was sent."""


class Messages(Protocol):
    async def send(
        self,
        caller: Caller,
        place: Place,
        messages: Sequence[Message],
        *,
        acks: Acks = Acks.ALL,
        timeout_s: float = 30.0,
    ) -> Appended:
        """Append the messages together, in order: `base_offset` is that of the first of them.

        What all doors send to a partition in one turn of the loop leaves in one batch. KafkaError as
        `PartitionAccess.append`; MESSAGE_TOO_LARGE when they do not fit into one batch of the topic.
        """
        ...
