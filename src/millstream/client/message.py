"""Messages as a consumer returns them: thin wrappers around librdkafka's messages that read a field on access."""

from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import msgspec
from msgspec.structs import force_setattr

from millstream.client.errors import DeserializationError
from millstream.client.serde import Deserializer, K, V

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

Headers = list[tuple[str, bytes | None]]

_FIELDS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp_ms")
_NO_TIMESTAMP = 0


class Message(Generic[K, V]):
    """A message that was read. Its fields are attributes, and can be read by name too: `message["topic"]`.

    `Message[str, dict]` has a key of type str and a value of type dict, as the consumer's deserializers return them.
    A missing key or value is None. Both are deserialized on access, and a failure raises DeserializationError there,
    so that one unreadable message does not block the others. Messages cannot be changed.

    >>> from millstream.client import Consumer, Producer
    >>> with Producer("localhost:9092") as producer:
    ...     stored = producer.send("greetings", "Hello", key="user-1").result()
    >>> with Consumer("localhost:9092") as consumer:
    ...     consumer.assign({(stored.topic, stored.partition): stored.offset})
    ...     message = next(iter(consumer))
    >>> message.key, message.value, message["offset"] == stored.offset
    (b'user-1', b'Hello', True)
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _raw: RawMessage

        @property
        def key(self) -> K | None:
            """The key, deserialized."""

        @property
        def value(self) -> V | None:
            """The value, deserialized."""

    @property
    def topic(self) -> str:
        return self._raw.topic()  # type: ignore[return-value]

    @property
    def partition(self) -> int:
        return self._raw.partition()  # type: ignore[return-value]

    @property
    def offset(self) -> int:
        return self._raw.offset()  # type: ignore[return-value]

    @property
    def next_offset(self) -> int:
        """The offset to commit once this message and all before it are processed."""
        return self.offset + 1

    @property
    def timestamp_ms(self) -> int | None:
        """When the message was created, or stored if the topic's settings say so; None if unknown."""
        kind, timestamp_ms = self._raw.timestamp()
        return None if kind == _NO_TIMESTAMP else timestamp_ms

    @property
    def headers(self) -> Headers:
        """All headers in order; a name may occur more than once."""
        return list(self._raw.headers() or ())  # type: ignore[arg-type]

    def header(self, name: str) -> bytes | None:
        """The last header of this name, or None."""
        return next((value for each, value in reversed(self.headers) if each == name), None)

    @property
    def raw_key(self) -> bytes | None:
        """The key as it was sent."""
        return self._raw.key()

    @property
    def raw_value(self) -> bytes | None:
        """The value as it was sent."""
        return self._raw.value()

    @overload
    def __getitem__(self, name: Literal["topic"]) -> str: ...
    @overload
    def __getitem__(self, name: Literal["partition", "offset"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["key"]) -> K | None: ...
    @overload
    def __getitem__(self, name: Literal["value"]) -> V | None: ...
    @overload
    def __getitem__(self, name: Literal["headers"]) -> Headers: ...
    @overload
    def __getitem__(self, name: Literal["timestamp_ms"]) -> int | None: ...
    @overload
    def __getitem__(self, name: str) -> Any: ...
    def __getitem__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise KeyError(name)
        return getattr(self, name)

    def keys(self) -> tuple[str, ...]:
        """The names of the fields, so that `dict(message)` works."""
        return _FIELDS

    def __repr__(self) -> str:
        place = f"topic={self.topic!r}, partition={self.partition}, offset={self.offset}"
        return f"Message({place}, key={self.raw_key!r}, value={self.raw_value!r})"


# Every message read becomes one of these, so creating one must be cheap: a msgspec Struct is created by C code. It is
# never part of a reference cycle, so the garbage collector need not track it.
class BytesMessage(Message[bytes, bytes], msgspec.Struct, frozen=True, gc=False):
    """A message without deserializers. The value is copied at once, because nearly every caller reads it."""

    _raw: "RawMessage"
    value: bytes | None

    @property
    def key(self) -> bytes | None:
        return self._raw.key()


class DecodedMessage(Message[Any, Any], msgspec.Struct, frozen=True, eq=False):
    """A message with deserializers. Each runs at most once, when its field is first read."""

    _raw: "RawMessage"
    _deserialize_key: Deserializer[Any] | None
    _deserialize_value: Deserializer[Any] | None
    _key: Any = msgspec.UNSET
    _value: Any = msgspec.UNSET

    @property
    def key(self) -> Any:
        if self._key is msgspec.UNSET:
            force_setattr(self, "_key", self._decode(self._deserialize_key, self._raw.key(), "key"))
        return self._key

    @property
    def value(self) -> Any:
        if self._value is msgspec.UNSET:
            force_setattr(self, "_value", self._decode(self._deserialize_value, self._raw.value(), "value"))
        return self._value

    def _decode(self, deserializer: Deserializer[Any] | None, data: bytes | None, what: str) -> Any:
        if data is None or deserializer is None:
            return data
        try:
            return deserializer(data)
        except Exception as error:
            place = f"{self.topic}, partition {self.partition}, offset {self.offset}"
            raise DeserializationError(f"the {what} of {place} cannot be read: {error}") from error
