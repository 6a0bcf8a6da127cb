"""The records of `__mqtt_sessions`: the key identifies the subject; a value of None removes it."""

import enum
from collections.abc import Collection
from typing import Annotated

import msgspec
from msgspec.structs import replace

from millstream.coordinator.record_table import RecordKind, RecordTable
from millstream.protocol.layout import (
    BYTES,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Kind,
    Layout,
    array,
    mapped,
    row,
)
from millstream.protocol.records import Headers


def _nullable(of: Kind) -> Kind:
    """A nullable value, as an array of at most one."""
    return mapped(
        array(of), lambda value: () if value is None else (value,), lambda found: found[0] if found else None
    )


# A client id and a filter may have 65,535 bytes, a string of Kafka's fewer.
_TEXT = mapped(BYTES, str.encode, bytes.decode)
_Text = Annotated[str, _TEXT]
_Bytes = Annotated[bytes | None, _nullable(BYTES)]


class KeptMessage(msgspec.Struct, frozen=True):
    """A message and its partition, which the door has determined."""

    topic: str
    partition: Int32
    key: _Bytes
    value: _Bytes
    headers: Annotated[Headers, mapped(array(row(_TEXT, _nullable(BYTES))), list, tuple)] = ()


class StoredWill(msgspec.Struct, frozen=True):
    """A retained will has more than one message."""

    messages: tuple[KeptMessage, ...]
    delay_s: Int64


class SessionKey(msgspec.Struct, frozen=True):
    client_id: _Text


class StoredSession(msgspec.Struct, frozen=True):
    epoch: Int64
    """The newest connection's; requests of others are refused."""
    expiry_s: Int64
    node: _Text
    """The node of the connection; empty while there is none."""
    left_ms: Int64
    """When the connection ended; 0 while there is one."""
    will: Annotated[StoredWill | None, _nullable(Layout(StoredWill))] = None


class SubscriptionKey(msgspec.Struct, frozen=True):
    client_id: _Text
    filter: _Text


class StoredSubscription(msgspec.Struct, frozen=True):
    qos: Int8
    options: Int8
    """As on the wire: no local, retain as published, retain handling."""
    identifier: Int32


class PositionsKey(msgspec.Struct, frozen=True):
    client_id: _Text


class Position(msgspec.Struct, frozen=True):
    """How far a session has read a partition: messages before `offset` need no more delivery.

    For QoS 2 the limit is `once_offset`: messages before it were delivered, or are in flight under an identifier.
    """

    topic: str
    partition: Int32
    offset: Int64
    once_offset: Int64 = 0
    topic_id: Annotated[bytes, Field(until=-1)] = b""
    """The position is not valid for another topic of that name. Empty if unknown."""


class StoredPositions(msgspec.Struct, frozen=True):
    positions: tuple[Position, ...]
    topic_ids: Annotated[tuple[bytes, ...], Field(since=1)] = ()
    """One for each position, in order. Stored last, because older nodes read only the fields before it."""

    @classmethod
    def of(cls, positions: Collection[Position]) -> "StoredPositions":
        return cls(tuple(positions), tuple(each.topic_id for each in positions))

    def by_place(self) -> dict[tuple[str, int], Position]:
        ids = self.topic_ids or (b"",) * len(self.positions)
        return {
            (each.topic, each.partition): replace(each, topic_id=topic_id)
            for each, topic_id in zip(self.positions, ids, strict=True)
        }


class FlightStage(enum.IntEnum):
    SENT = 0
    RELEASED = 1


class FlightKey(msgspec.Struct, frozen=True):
    client_id: _Text
    packet_id: Int32


class StoredFlight(msgspec.Struct, frozen=True):
    """A message that was sent and not acknowledged; `number` gives the order."""

    topic: str
    partition: Int32
    offset: Int64
    qos: Int8
    retain: Int8
    stage: Int8
    number: Int64
    identifiers: tuple[Int32, ...] = ()
    topic_id: Annotated[bytes, Field(since=1)] = b""


class ReceivedKey(msgspec.Struct, frozen=True):
    """A message of QoS 2 that the client has sent and not released."""

    client_id: _Text
    packet_id: Int32


class StoredReceived(msgspec.Struct, frozen=True):
    received_ms: Int64


class PendingKey(msgspec.Struct, frozen=True):
    number: Int64


class StoredPending(msgspec.Struct, frozen=True):
    """A message to append under this sequence number, which makes the append happen once."""

    message: KeptMessage
    sequence: Int32


class SequenceKey(msgspec.Struct, frozen=True):
    topic: str
    partition: Int32


class StoredSequence(msgspec.Struct, frozen=True):
    following: Int32
    epoch: Int16
    """Raised when a message was refused permanently: sequence numbers restart at 0."""


class ProducerKey(msgspec.Struct, frozen=True):
    pass


class StoredProducer(msgspec.Struct, frozen=True):
    producer_id: Int64


Key = (
    SessionKey
    | SubscriptionKey
    | PositionsKey
    | FlightKey
    | ReceivedKey
    | PendingKey
    | SequenceKey
    | ProducerKey
)
Value = (
    StoredSession
    | StoredSubscription
    | StoredPositions
    | StoredFlight
    | StoredReceived
    | StoredPending
    | StoredSequence
    | StoredProducer
)


class SessionRecord(msgspec.Struct, frozen=True):
    key: Key
    value: Value | None


_TABLE = RecordTable(
    RecordKind(0, SessionKey, Layout(StoredSession)),
    RecordKind(1, SubscriptionKey, Layout(StoredSubscription)),
    RecordKind(2, PositionsKey, Layout(StoredPositions, newest=1, written=1)),
    RecordKind(3, FlightKey, Layout(StoredFlight, newest=1, written=1)),
    RecordKind(4, ReceivedKey, Layout(StoredReceived)),
    RecordKind(5, PendingKey, Layout(StoredPending)),
    RecordKind(6, SequenceKey, Layout(StoredSequence)),
    RecordKind(7, ProducerKey, Layout(StoredProducer)),
)


def encode_record(record: SessionRecord) -> tuple[bytes, bytes | None]:
    return _TABLE.encode(record.key, record.value)


def decode_record(key: bytes, value: bytes | None) -> SessionRecord | None:
    """None for a kind of record that only newer versions know."""
    decoded = _TABLE.decode(key, value)
    return None if decoded is None else SessionRecord(*decoded)
