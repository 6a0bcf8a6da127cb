"""Requests to break things with: valid ones of every API and version, and what a broken client makes of them.

Everything comes from one seed. FUZZ_SEED chooses another, FUZZ_ROUNDS=100 makes a run a hundred
times as long.
"""

import datetime
import os
import random
import struct
import uuid
from collections.abc import Iterator
from typing import Any

from millstream.protocol.api import APIS, PRODUCE, PRODUCE_SERVED_FROM, Api
from millstream.protocol.codec import message_class
from millstream.protocol.message_shape import FieldShape, shape_of
from support.kio_messages import encode
from support.raw_client import batch_of, garbage_batch

SEED = int(os.environ.get("FUZZ_SEED", "20250131"))
ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "1"))

_NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "error_code": 8}
_NAMES = (
    "fuzz-0",
    "fuzz-1",
    "",
    "no-such-topic",
    "ü",
    "x" * 300,
    "__consumer_offsets",
    "a/b",
    "retention.ms",
)


def every_version() -> Iterator[tuple[Api, int]]:
    for api in APIS.values():
        first = PRODUCE_SERVED_FROM if api.key == PRODUCE else api.min_version
        for version in range(first, api.max_version + 1):
            yield api, version


def chance_for(api: Api, version: int) -> random.Random:
    """Chance that depends on the seed and the message only, so that one failing case can be run alone."""
    return random.Random(f"{SEED}-{api.name}-{version}")


def valid_body(chance: random.Random, api: Api, version: int) -> bytes:
    return encode(_message(chance, message_class(api.name, version, "request")))


def _message(chance: random.Random, message: Any) -> Any:
    return message(**{field.name: _field(chance, field) for field in shape_of(message)})


def _field(chance: random.Random, field: FieldShape) -> Any:
    if field.nullable and chance.random() < 0.2:
        return None
    if field.is_array:
        return tuple(_value(chance, field) for _ in range(chance.choice((0, 1, 1, 2, 5))))
    return _value(chance, field)


def _value(chance: random.Random, field: FieldShape) -> Any:
    kind = field.kafka_type
    if field.entity:
        return _message(chance, field.entity)
    if kind in _NUMBERS:
        limit = 1 << (_NUMBERS[kind] - 1)
        return chance.choice((0, 0, 1, 1, 2, 3, -1, -2, 100, limit - 1, -limit))
    match kind:
        case "uint16":
            return chance.choice((0, 1, 9092, 0xFFFF))
        case "string":
            return chance.choice(_NAMES)
        case "bool":
            return chance.random() < 0.5
        case "uuid":
            return uuid.UUID(int=chance.getrandbits(128))
        case "records":
            return chance.choice(
                (batch_of(b"a", b"b", timestamp_ms=1), garbage_batch(0, 1), b"", b"nonsense")
            )
        case "bytes":
            return chance.randbytes(chance.randrange(40))
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=chance.choice((0, 1, 5)))
        case "float64":
            return chance.random()
    raise AssertionError(f"no idea of {kind}")


# -- what becomes of them

_NASTY_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
_NASTY_NUMBERS = (-1, -2, 0, 1, 2**31 - 1, -(2**31), 2**30, 65_536, 2**24)


def mutated(chance: random.Random, data: bytes) -> bytes:
    """One to four changes: bits, bytes, lengths, cuts, insertions, repetitions."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(_MUTATIONS)(chance, bytearray(data))
    return bytes(data)


def _flip_bit(chance: random.Random, data: bytearray) -> bytearray:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def _set_byte(chance: random.Random, data: bytearray) -> bytearray:
    if data:
        data[chance.randrange(len(data))] = chance.choice(_NASTY_BYTES)
    return data


def _set_number(chance: random.Random, data: bytearray) -> bytearray:
    layout = chance.choice((">i", ">h"))
    size = struct.calcsize(layout)
    if len(data) >= size:
        number = chance.choice(_NASTY_NUMBERS)
        number = number if layout == ">i" else (number + 32_768) % 65_536 - 32_768
        struct.pack_into(layout, data, chance.randrange(len(data) - size + 1), number)
    return data


def _set_varint(chance: random.Random, data: bytearray) -> bytearray:
    at = chance.randrange(len(data) + 1)
    data[at : at + 1] = chance.choice(
        (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x01", b"\xff\x7f", b"\x80" * 9)
    )
    return data


def _cut(chance: random.Random, data: bytearray) -> bytearray:
    return data[: chance.randrange(len(data) + 1)]


def _insert(chance: random.Random, data: bytearray) -> bytearray:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.randbytes(chance.choice((1, 2, 4, 30)))
    return data


def _remove(chance: random.Random, data: bytearray) -> bytearray:
    at = chance.randrange(len(data) + 1)
    del data[at : at + chance.choice((1, 2, 4, 8))]
    return data


def _repeat(chance: random.Random, data: bytearray) -> bytearray:
    at = chance.randrange(len(data) + 1)
    piece = data[at : at + chance.randrange(1, 40)]
    data[at:at] = piece * chance.choice((1, 2, 50))
    return data


_MUTATIONS = (_flip_bit, _set_byte, _set_number, _set_number, _set_varint, _cut, _insert, _remove, _repeat)
