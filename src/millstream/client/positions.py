"""Partitions and offsets as callers write them, and as librdkafka wants them."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from millstream.client.choices import OffsetResetPolicy
from millstream.client.errors import ClientError, from_kafka
from millstream.client.message import Message

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

Place = tuple[str, int]
"""A topic and the number of a partition."""

Offsets = Mapping[Place, int] | Mapping[str, Mapping[int, int]]
"""`{("events", 0): 42}` or `{"events": {0: 42}}`; the offset is that of the next message to read."""

# librdkafka's names for positions that are not numbers of messages.
BEGINNING, END, COMMITTED = -2, -1, -1000
LOGICAL = {OffsetResetPolicy.EARLIEST: BEGINNING, OffsetResetPolicy.LATEST: END}


def partitions(places: Iterable[Place]) -> "list[TopicPartition]":
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, partition) for topic, partition in places]


def places(found: "Iterable[TopicPartition]") -> list[Place]:
    return [(each.topic, each.partition) for each in found]


def at(place: Place, offset: int) -> "TopicPartition":
    from confluent_kafka import TopicPartition

    return TopicPartition(*place, offset)


def with_offsets(offsets: Offsets) -> "list[TopicPartition]":
    found: list[TopicPartition] = []
    for name, value in offsets.items():
        if isinstance(name, tuple) and isinstance(value, int):
            found.append(at(name, value))
        elif isinstance(name, str) and isinstance(value, Mapping):
            found += [at((name, partition), offset) for partition, offset in value.items()]
        else:
            raise ClientError(
                f"{{{name!r}: {value!r}}} is not an offset; write {{(topic, partition): offset}}"
            )
    return found


def known(positions: "Iterable[TopicPartition]") -> "list[TopicPartition]":
    """Those that name an offset."""
    return [each for each in positions if each.offset >= 0]


def first_of_each(messages: Iterable[Message]) -> dict[Place, int]:
    """The lowest offset of each partition, where reading continues when the messages are given back."""
    first: dict[Place, int] = {}
    for message in messages:
        place = (message.topic, message.partition)
        first[place] = min(message.offset, first.get(place, message.offset))
    return first


def raise_failed(action: str, done: "Iterable[TopicPartition]") -> None:
    """librdkafka answers partition by partition; the first error is raised."""
    for each in done:
        if each.error is not None:
            raise from_kafka(f"{action} for {each.topic}, partition {each.partition}", each.error)
