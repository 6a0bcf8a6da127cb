"""A binary codec from a table of fields: for the records of internal topics, which kio does not describe.

A `Layout` takes the fields of a struct in order, with the encodings of their types and the versions that have them. It
writes the version before the value, and reads values of all versions: fields that an older version lacks get their
defaults, and a newer version may only add tagged fields (KIP-915).

    class Point(msgspec.Struct):
        x: Int32
        label: Annotated[str, Field(since=1, default="")]

    POINT = Layout(Point, newest=1)
    POINT.decode(POINT.encode(Point(1, "a"))) == Point(1, "a")

`str` and `bytes` are Kafka's strings and bytes, `X | None` may be null, `tuple[X, ...]` is an array, other tuples are
structures without a name, and a struct is a structure. For numbers and any other shape, `Annotated` names the kind.
"""

import struct
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import fields as struct_fields

from millstream.protocol.wire import (
    I16,
    I32,
    MalformedRequest,
    Reader,
    array_length,
    nullable_string,
    uvarint,
)

T = TypeVar("T")

_LONGEST_STRING = 0x7FFF


class Codec(NamedTuple):
    """Encoder and decoder of a field at one version. `number` is its struct format, if it can be packed with others."""

    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]
    number: str = ""


Kind = Callable[[int, bool], Codec]
"""The kind of a field: returns its codec for a version, which may be flexible."""


class Field(NamedTuple):
    """`since` and `until` are the first and last versions with the field; others read `default`, or the struct's own.

    A field with a `tag` is written after the others in flexible versions, and only if it is not the default.
    """

    kind: Kind | None = None
    """By default, the kind of the field's type."""
    since: int = 0
    until: int = 0x7FFF
    tag: int | None = None
    default: Any = None


def _number(form: str) -> Kind:
    layout = struct.Struct(">" + form)
    codec = Codec(layout.pack, lambda reader: reader.unpack(layout)[0], form)
    return lambda _version, _flexible: codec


INT8, INT16, INT32, INT64 = map(_number, "bhiq")
Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]


def UUID(_version: int, _flexible: bool) -> Codec:  # noqa: N802 - named as the other kinds are
    return Codec(attrgetter("bytes"), lambda reader: uuid.UUID(bytes=reader.uuid()))


def STRING(_version: int, flexible: bool) -> Codec:  # noqa: N802
    return Codec(_compact_string if flexible else _short_string, Reader.string)


def NULLABLE_STRING(_version: int, flexible: bool) -> Codec:  # noqa: N802
    write = _compact_string if flexible else _short_string
    null = nullable_string(None, flexible=flexible)
    return Codec(lambda value: null if value is None else write(value), Reader.nullable_string)


def BYTES(_version: int, flexible: bool) -> Codec:  # noqa: N802
    """Null is read as empty bytes."""
    return Codec(
        lambda value: (uvarint(len(value) + 1) if flexible else I32.pack(len(value))) + value,
        lambda reader: bytes(reader.nullable_bytes() or b""),
    )


def array(of: Kind) -> Kind:
    """Any sequence; read as a list."""

    def kind(version: int, flexible: bool) -> Codec:
        write, read, number = of(version, flexible)
        if number:
            return _numbers(number, flexible)

        def write_all(values: Sequence[Any]) -> bytes:
            return b"".join((array_length(len(values), flexible=flexible), *map(write, values)))

        def read_all(reader: Reader) -> list[Any]:
            return [read(reader) for _ in range(reader.array_length())]

        return Codec(write_all, read_all)

    return kind


def _numbers(form: str, flexible: bool) -> Codec:
    """An array of numbers: packed at once, for a member of a group may have a hundred thousand partitions."""

    def write(values: Sequence[int]) -> bytes:
        return array_length(len(values), flexible=flexible) + struct.pack(f">{len(values)}{form}", *values)

    def read(reader: Reader) -> list[int]:
        return list(reader.unpack(struct.Struct(f">{max(reader.array_length(), 0)}{form}")))

    return Codec(write, read)


def row(*of: Kind) -> Kind:
    """A structure without a name: a tuple of its fields."""

    def kind(version: int, flexible: bool) -> Codec:
        codecs = [each(version, flexible) for each in of]
        end = b"\0" if flexible else b""

        def write(values: Sequence[Any]) -> bytes:
            parts = [codec.write(value) for codec, value in zip(codecs, values, strict=True)]
            return b"".join(parts) + end

        def read(reader: Reader) -> tuple[Any, ...]:
            values = tuple([codec.read(reader) for codec in codecs])
            reader.skip_tags()
            return values

        return Codec(write, read)

    return kind


def mapped(of: Kind, to_wire: Callable[[Any], Any], from_wire: Callable[[Any], Any]) -> Kind:
    """A kind whose values are converted on the way to and from the wire."""

    def kind(version: int, flexible: bool) -> Codec:
        codec = of(version, flexible)
        return Codec(lambda value: codec.write(to_wire(value)), lambda reader: from_wire(codec.read(reader)))

    return kind


def optional(of: Kind) -> Kind:
    """A nullable structure: a byte before it tells whether it is present."""

    def kind(version: int, flexible: bool) -> Codec:
        codec = of(version, flexible)
        return Codec(
            lambda value: b"\xff" if value is None else b"\1" + codec.write(value),
            lambda reader: None if reader.i8() < 0 else codec.read(reader),
        )

    return kind


class _NamedField(NamedTuple):
    name: str
    kind: Kind
    since: int
    until: int
    tag: int | None
    default: Any


def _fields_of(made: type) -> list[_NamedField]:
    found = []
    hints = get_type_hints(made, include_extras=True)
    for each in struct_fields(made):
        of, given = hints[each.name], Field()
        if get_origin(of) is Annotated and isinstance(get_args(of)[-1], Field):
            of, *others, given = get_args(of)
            of = Annotated[of, *others] if others else of
        default = (
            each.default if given.default is None and each.default is not msgspec.NODEFAULT else given.default
        )
        found.append(_NamedField(each.name, given.kind or _kind_of(of), *given[1:4], default))
    return found


def _kind_of(of: Any) -> Kind:
    """The kind of a type."""
    if of in _KINDS:
        return _KINDS[of]
    origin, arguments = get_origin(of), get_args(of)
    kind: Kind
    if origin is Annotated:
        kind = arguments[1]
    elif origin is UnionType:
        (inner,) = (each for each in arguments if each is not NoneType)
        kind = NULLABLE_STRING if inner is str else optional(_kind_of(inner))
    elif origin is tuple and arguments[-1] is Ellipsis:
        kind = mapped(array(_kind_of(arguments[0])), list, tuple)
    elif origin is tuple:
        kind = row(*map(_kind_of, arguments))
    else:
        kind = Layout(of)
    return kind


_KINDS: dict[Any, Kind] = {str: STRING, bytes: BYTES, uuid.UUID: UUID}


class Layout(Generic[T]):
    def __init__(
        self,
        made: type[T],
        *,
        newest: int = 0,
        written: Callable[[T], int] | int = 0,
        flexible_from: int = 0x7FFF,
    ) -> None:
        """`made` is a struct; `written` is the version that values are written in; `flexible_from` the first one with
        compact fields."""
        self._made = made
        self._fields = _fields_of(made)
        self._newest = newest
        self._written = written
        self._flexible_from = flexible_from
        self._at = cache(self._codec)

    def encode(self, value: T) -> bytes:
        """Its version, and its fields."""
        written = self._written
        version = written(value) if callable(written) else written
        return I16.pack(version) + self._at(version, version >= self._flexible_from).write(value)

    def decode(self, data: bytes) -> T:
        """MalformedRequest for invalid bytes."""
        reader = Reader(memoryview(data))
        version = reader.i16()
        if version < 0:
            raise MalformedRequest(f"a value has the impossible version {version}")
        reader.flexible = version >= self._flexible_from
        value: T = self._at(min(version, self._newest), reader.flexible).read(reader)
        return value

    def __call__(self, version: int, flexible: bool) -> Codec:
        """Use the layout as the kind of a field: a nested structure, without a version of its own."""
        return self._at(version, flexible)

    def _codec(self, version: int, flexible: bool) -> Codec:
        places = {field.name: place for place, field in enumerate(self._fields)}
        present = [field for field in self._fields if field.since <= version <= field.until]
        steps = _steps([field for field in present if field.tag is None], places, version, flexible)
        writes = [(attrgetter(*step.names), step.write) for step in steps]
        reads = [(step.slot, step.read) for step in steps]
        tagged = {field.tag: field for field in present if field.tag is not None}
        codecs = {tag: field.kind(version, flexible) for tag, field in tagged.items()}
        defaults = [field.default for field in self._fields]
        made = self._made

        def write(value: T) -> bytes:
            body = b"".join([write(get(value)) for get, write in writes])
            return body + _tags(value, tagged, codecs) if flexible else body

        def read(reader: Reader) -> T:
            values = defaults.copy()
            for slot, read in reads:
                values[slot] = read(reader)
            if flexible:
                for tag, content in reader.tags().items():
                    if tag in tagged:
                        values[places[tagged[tag].name]] = codecs[tag].read(Reader(content, flexible=True))
            return made(*values)

        return Codec(write, read)


class _Step(NamedTuple):
    """One field, or several adjacent numbers, which are packed together."""

    names: tuple[str, ...]
    slot: Any
    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def _steps(fields: list[_NamedField], places: dict[str, int], version: int, flexible: bool) -> list[_Step]:
    steps = []
    codecs = [(field.name, field.kind(version, flexible)) for field in fields]
    # Neighbours in the table keep their distance to their position here; a field left out between two moves it.
    numbered = ((name, codec, places[name] - position) for position, (name, codec) in enumerate(codecs))
    for (is_number, _), group in groupby(numbered, lambda each: (bool(each[1].number), each[2])):
        some = list(group)
        if is_number and len(some) > 1:
            layout = struct.Struct(">" + "".join(codec.number for _, codec, _ in some))
            steps.append(_packed([name for name, _, _ in some], places, layout))
        else:
            steps += [_Step((name,), places[name], codec.write, codec.read) for name, codec, _ in some]
    return steps


def _packed(names: list[str], places: dict[str, int], layout: struct.Struct) -> _Step:
    slot = slice(places[names[0]], places[names[-1]] + 1)
    return _Step(
        tuple(names), slot, lambda numbers: layout.pack(*numbers), lambda reader: reader.unpack(layout)
    )


def _tags(value: Any, tagged: dict[int, _NamedField], codecs: dict[int, Codec]) -> bytes:
    parts = []
    for tag, field in sorted(tagged.items()):
        content = getattr(value, field.name)
        if content != field.default:
            written = codecs[tag].write(content)
            parts += [uvarint(tag), uvarint(len(written)), written]
    return uvarint(len(parts) // 3) + b"".join(parts)


def _short_string(value: str) -> bytes:
    data = value.encode()
    if len(data) > _LONGEST_STRING:
        raise MalformedRequest(f"a string of {len(data)} bytes does not fit; {_LONGEST_STRING} is the most")
    return I16.pack(len(data)) + data


def _compact_string(value: str) -> bytes:
    data = value.encode()
    return uvarint(len(data) + 1) + data
