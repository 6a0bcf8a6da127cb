"""Messages as a consumer hands them out: thin covers over librdkafka's, which read a field when asked for it."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.client.errors import DeserializationError
from millstream.client.serde import Deserializer

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

_FIELDS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp_ms")
_NO_TIMESTAMP = 0


class Message:
    """A message that was read. Its fields can be had by attribute, `message.topic`, or by name, `message["topic"]`.

    With a deserializer, `key` and `value` are deserialized when they are asked for and raise DeserializationError
    where that fails, so that one unreadable message does not stand in the way of the others.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _raw: RawMessage

        @property
        def key(self) -> Any: ...

        @property
        def value(self) -> Any: ...

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
    def headers(self) -> list[tuple[str, bytes | None]]:
        """All headers in order; a name may occur more than once."""
        return list(self._raw.headers() or ())  # type: ignore[arg-type]

    def header(self, name: str) -> bytes | None:
        """The last header of this name, or None."""
        return next((value for each, value in reversed(self.headers) if each == name), None)

    @property
    def raw_key(self) -> bytes | None:
        return self._raw.key()

    @property
    def raw_value(self) -> bytes | None:
        return self._raw.value()

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
class BytesMessage(Message, msgspec.Struct, frozen=True, gc=False):
    """Without deserializers. The value, which everybody reads, is taken out at once."""

    _raw: "RawMessage"
    value: bytes | None

    @property
    def key(self) -> bytes | None:
        return self._raw.key()


class DecodedMessage(Message, msgspec.Struct):
    """With deserializers, each of which runs once at most."""

    _raw: "RawMessage"
    _deserialize_key: Deserializer | None
    _deserialize_value: Deserializer | None
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

    def _decode(self, deserializer: Deserializer | None, data: bytes | None, what: str) -> Any:
        if data is None or deserializer is None:
            return data
        try:
            return deserializer(data)
        except Exception as error:
            place = f"{self.topic}, partition {self.partition}, offset {self.offset}"
            raise DeserializationError(f"the {what} of {place} cannot be read: {error}") from error
