"""The records of `__mqtt_sessions`: a key says what it is about, a value of None removes it."""

import enum

import msgspec

from millstream.coordinator.record_table import RecordKind, RecordTable
from millstream.protocol.layout import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    Kind,
    Layout,
    array,
    mapped,
    row,
)
from millstream.protocol.records import Headers


class KeptMessage(msgspec.Struct, frozen=True):
    """A message and its place in the log, as the door has worked it out."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class StoredWill(msgspec.Struct, frozen=True):
    """`messages` are more than one where the will is retained."""

    messages: tuple[KeptMessage, ...]
    delay_s: int


class SessionKey(msgspec.Struct, frozen=True):
    client_id: str


class StoredSession(msgspec.Struct, frozen=True):
    epoch: int
    """Of the newest connection; requests of others are refused."""
    expiry_s: int
    node: str
    """Where it is connected; empty while it is not."""
    left_ms: int
    """When its connection ended; 0 while there is one."""
    will: StoredWill | None = None


class SubscriptionKey(msgspec.Struct, frozen=True):
    client_id: str
    filter: str


class StoredSubscription(msgspec.Struct, frozen=True):
    qos: int
    options: int
    """As on the wire: no local, retain as published, retain handling."""
    identifier: int


class PositionsKey(msgspec.Struct, frozen=True):
    client_id: str


class Position(msgspec.Struct, frozen=True):
    """How far a session has read a partition: what lies before `offset` needs no more delivery.

    Of QoS 2 this holds for what lies before `once_offset`: it was delivered, or is in flight under an identifier.
    """

    topic: str
    partition: int
    offset: int
    once_offset: int = 0


class StoredPositions(msgspec.Struct, frozen=True):
    positions: tuple[Position, ...]


class FlightStage(enum.IntEnum):
    SENT = 0
    RELEASED = 1


class FlightKey(msgspec.Struct, frozen=True):
    client_id: str
    packet_id: int


class StoredFlight(msgspec.Struct, frozen=True):
    """A message that the client was sent and has not acknowledged; `number` gives the order."""

    topic: str
    partition: int
    offset: int
    qos: int
    retain: int
    stage: int
    number: int
    identifiers: tuple[int, ...] = ()


class ReceivedKey(msgspec.Struct, frozen=True):
    """A message of QoS 2 that the client has sent and not released."""

    client_id: str
    packet_id: int


class StoredReceived(msgspec.Struct, frozen=True):
    received_ms: int


class OwedKey(msgspec.Struct, frozen=True):
    number: int


class StoredOwed(msgspec.Struct, frozen=True):
    """To be appended under this sequence number, which makes it happen once."""

    message: KeptMessage
    sequence: int


class SequenceKey(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class StoredSequence(msgspec.Struct, frozen=True):
    following: int
    epoch: int
    """Grows when a message was refused for good: the numbers begin again at 0."""


class ProducerKey(msgspec.Struct, frozen=True):
    pass


class StoredProducer(msgspec.Struct, frozen=True):
    producer_id: int


Key = (
    SessionKey
    | SubscriptionKey
    | PositionsKey
    | FlightKey
    | ReceivedKey
    | OwedKey
    | SequenceKey
    | ProducerKey
)
Value = (
    StoredSession
    | StoredSubscription
    | StoredPositions
    | StoredFlight
    | StoredReceived
    | StoredOwed
    | StoredSequence
    | StoredProducer
)


class SessionRecord(msgspec.Struct, frozen=True):
    key: Key
    value: Value | None


def _nullable(of: Kind) -> Kind:
    """Bytes that may be null, in an array of at most one."""
    return mapped(
        array(of), lambda value: () if value is None else (value,), lambda found: found[0] if found else None
    )


# A client id and a filter may have 65,535 bytes, a string of Kafka's fewer.
_TEXT = mapped(BYTES, str.encode, bytes.decode)
_CLIENT = Field("client_id", _TEXT)
_HEADERS = mapped(array(row(_TEXT, _nullable(BYTES))), list, tuple)
_MESSAGE = Layout(
    KeptMessage,
    Field("topic", STRING),
    Field("partition", INT32),
    Field("key", _nullable(BYTES)),
    Field("value", _nullable(BYTES)),
    Field("headers", _HEADERS),
)
_WILL = Layout(StoredWill, Field("messages", mapped(array(_MESSAGE), list, tuple)), Field("delay_s", INT64))
_POSITION = Layout(
    Position,
    Field("topic", STRING),
    Field("partition", INT32),
    Field("offset", INT64),
    Field("once_offset", INT64),
)

_TABLE = RecordTable(
    RecordKind(
        0,
        Layout(SessionKey, _CLIENT),
        Layout(
            StoredSession,
            Field("epoch", INT64),
            Field("expiry_s", INT64),
            Field("node", _TEXT),
            Field("left_ms", INT64),
            Field("will", _nullable(_WILL)),
        ),
        SessionKey,
    ),
    RecordKind(
        1,
        Layout(SubscriptionKey, _CLIENT, Field("filter", _TEXT)),
        Layout(StoredSubscription, Field("qos", INT8), Field("options", INT8), Field("identifier", INT32)),
        SubscriptionKey,
    ),
    RecordKind(
        2,
        Layout(PositionsKey, _CLIENT),
        Layout(StoredPositions, Field("positions", mapped(array(_POSITION), list, tuple))),
        PositionsKey,
    ),
    RecordKind(
        3,
        Layout(FlightKey, _CLIENT, Field("packet_id", INT32)),
        Layout(
            StoredFlight,
            Field("topic", STRING),
            Field("partition", INT32),
            Field("offset", INT64),
            Field("qos", INT8),
            Field("retain", INT8),
            Field("stage", INT8),
            Field("number", INT64),
            Field("identifiers", mapped(array(INT32), list, tuple)),
        ),
        FlightKey,
    ),
    RecordKind(
        4,
        Layout(ReceivedKey, _CLIENT, Field("packet_id", INT32)),
        Layout(StoredReceived, Field("received_ms", INT64)),
        ReceivedKey,
    ),
    RecordKind(
        5,
        Layout(OwedKey, Field("number", INT64)),
        Layout(StoredOwed, Field("message", _MESSAGE), Field("sequence", INT32)),
        OwedKey,
    ),
    RecordKind(
        6,
        Layout(SequenceKey, Field("topic", STRING), Field("partition", INT32)),
        Layout(StoredSequence, Field("following", INT32), Field("epoch", INT16)),
        SequenceKey,
    ),
    RecordKind(
        7,
        Layout(ProducerKey),
        Layout(StoredProducer, Field("producer_id", INT64)),
        ProducerKey,
    ),
)


def encode_record(record: SessionRecord) -> tuple[bytes, bytes | None]:
    return _TABLE.encode(record.key, record.value)


def decode_record(key: bytes, value: bytes | None) -> SessionRecord | None:
    """None for a kind of record that only a newer version knows."""
    decoded = _TABLE.decode(key, value)
    return None if decoded is None else SessionRecord(*decoded)
