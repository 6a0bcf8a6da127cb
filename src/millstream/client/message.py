"""Messages as a consumer hands them out: thin covers over librdkafka's, which read a field when asked for it."""

from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import msgspec

from millstream.client.errors import DeserializationError
from millstream.client.serde import Deserializer, K, V

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

Headers = list[tuple[str, bytes | None]]

_FIELDS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp_ms")
_NO_TIMESTAMP = 0


class Message(Generic[K, V]):
    """A message that was read. Its fields are attributes; by name, `message["topic"]`, they can be had too.

    `Message[str, dict]` has a key of str and a value of dict: what the consumer's deserializers return. Both are None
    where the message has none. They are deserialized when they are asked for and raise DeserializationError where
    that fails, so that one unreadable message does not stand in the way of the others.

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
        """What to commit when this message and all before it are processed."""
        return self.offset + 1

    @property
    def timestamp_ms(self) -> int | None:
        """When the message was created, or stored where the topic says so."""
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


# A message is made for everything that is read, so creating it must cost next to nothing: a msgspec Struct is made by
# C code. It holds no reference that could lead back to it, which is why the garbage collector need not know it.
class BytesMessage(Message[bytes, bytes], msgspec.Struct, frozen=True, gc=False):
    """Without deserializers. The value, which everybody reads, is taken out at once."""

    _raw: "RawMessage"
    value: bytes | None

    @property
    def key(self) -> bytes | None:
        return self._raw.key()


class DecodedMessage(Message[Any, Any], msgspec.Struct):
    """With deserializers, each of which runs once at most."""

    _raw: "RawMessage"
    _deserialize_key: Deserializer[Any] | None
    _deserialize_value: Deserializer[Any] | None
    _key: Any = msgspec.UNSET
    _value: Any = msgspec.UNSET

    @property
    def key(self) -> Any:
        if self._key is msgspec.UNSET:
            self._key = self._decode(self._deserialize_key, self._raw.key(), "key")
        return self._key

    @property
    def value(self) -> Any:
        if self._value is msgspec.UNSET:
            self._value = self._decode(self._deserialize_value, self._raw.value(), "value")
        return self._value

    def _decode(self, deserializer: Deserializer[Any] | None, data: bytes | None, what: str) -> Any:
        if data is None or deserializer is None:
            return data
        try:
            return deserializer(data)
        except Exception as error:
            place = f"{self.topic}, partition {self.partition}, offset {self.offset}"
            raise DeserializationError(f"the {what} of {place} cannot be read: {error}") from error
