"""Converts partitions and offsets between the forms of callers and those of librdkafka."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.client.errors import ClientError, from_kafka
from millstream.client.message import Message
from millstream.client.settings import OffsetResetPolicy

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as RawPlace


class TopicPartition(NamedTuple):
    """A topic and the number of a partition. A bare tuple of the two is taken wherever one is asked for.

    >>> TopicPartition("events", 0) == ("events", 0)
    True
    """

    topic: str
    partition: int


Place = TopicPartition | tuple[str, int]

Offsets = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | Mapping[str, Mapping[int, int]]
"""`{("events", 0): 42}` or `{"events": {0: 42}}`; the offset is that of the next message to read."""

# librdkafka's names for positions that are not numbers of messages.
BEGINNING, END, COMMITTED = -2, -1, -1000
LOGICAL = {OffsetResetPolicy.EARLIEST: BEGINNING, OffsetResetPolicy.LATEST: END}


def partitions(places: Iterable[Place]) -> "list[RawPlace]":
    from confluent_kafka import TopicPartition as RawPlace

    return [RawPlace(topic, partition) for topic, partition in places]


def places(found: "Iterable[RawPlace]") -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in found]


def at(place: Place, offset: int) -> "RawPlace":
    from confluent_kafka import TopicPartition as RawPlace

    topic, partition = place
    return RawPlace(topic, partition, offset)


def with_offsets(offsets: Offsets) -> "list[RawPlace]":
    found: list[RawPlace] = []
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


def known(positions: "Iterable[RawPlace]") -> "list[RawPlace]":
    """The positions that name an offset."""
    return [each for each in positions if each.offset >= 0]


def first_of_each(messages: Iterable[Message[Any, Any]]) -> dict[TopicPartition, int]:
    """The lowest offset of each partition: reading continues there when the messages are given back."""
    first: dict[TopicPartition, int] = {}
    for message in messages:
        place = TopicPartition(message.topic, message.partition)
        first[place] = min(message.offset, first.get(place, message.offset))
    return first


def raise_failed(action: str, done: "Iterable[RawPlace]") -> None:
    """Raise the first error in librdkafka's answers, which are one for each partition."""
    for each in done:
        if each.error is not None:
            raise from_kafka(f"{action} for {each.topic}, partition {each.partition}", each.error)
