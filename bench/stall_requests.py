"""The largest request that each API takes, for `bench.stall`: what means something by hand, the others by their schema.

A request by its schema fills one array, at the top (`wide`) or within one element of it (`deep`), up to the API's limit
(protocol/limits.py). Much of it names what is not there, which is found out one by one as well.
"""

import io
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from kio.serial import entity_writer

from bench.rawclient import string
from millstream.protocol.api import API_VERSIONS, APIS, Api
from millstream.protocol.codec import message_class
from millstream.protocol.limits import LIMITS
from millstream.protocol.message_shape import FieldShape, shape_of

Body = Callable[[int], bytes]


def _names(count: int) -> bytes:
    return struct.pack(">i", count) + b"".join(string(f"name-{number}") for number in range(count))


def _partitions(count: int, element: bytes) -> bytes:
    """One topic with so many partitions."""
    return struct.pack(">i", 1) + string("stall") + struct.pack(">i", count) + element * count


def _fetch(count: int) -> bytes:
    head = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
    return head + _partitions(count, struct.pack(">iqi", 0, 0, 1 << 20))


def _create(count: int) -> bytes:
    topics = b"".join(
        string(f"bad name {number}") + struct.pack(">ihii", 1, 1, 0, 0) for number in range(count)
    )
    return struct.pack(">i", count) + topics + struct.pack(">i?", 30_000, False)


def _join(count: int) -> bytes:
    protocols = b"".join(string(f"p{number}") + struct.pack(">i", 1) + b"m" for number in range(count))
    return (
        string("stall-group") + struct.pack(">ii", 10_000, 10_000) + string("") + string("consumer")
        + struct.pack(">i", count) + protocols
    )  # fmt: skip


def _produce(count: int) -> bytes:
    return struct.pack(">hhi", -1, -1, 30_000) + _partitions(count, struct.pack(">ii", 0, 0))


def _commit(count: int) -> bytes:
    partition = struct.pack(">iq", 0, 1) + string("")
    return (
        string("stall-group")
        + struct.pack(">i", -1)
        + string("")
        + struct.pack(">q", -1)
        + _partitions(count, partition)
    )


# By API: the version, whose encoding is the old one, and the body with so many elements.
REQUESTS: dict[str, tuple[int, Body]] = {
    "produce": (7, _produce),
    "fetch": (4, _fetch),
    "list_offsets": (1, lambda count: struct.pack(">i", -1) + _partitions(count, struct.pack(">iq", 0, -1))),
    "metadata": (4, lambda count: _names(count) + b"\0"),
    "offset_commit": (2, _commit),
    "offset_fetch": (5, lambda count: string("stall-group") + _partitions(count, struct.pack(">i", 0))),
    "join_group": (1, _join),
    "describe_groups": (2, _names),
    "delete_groups": (1, _names),
    "create_topics": (2, _create),
    "delete_topics": (1, lambda count: _names(count) + struct.pack(">i", 30_000)),
    "delete_records": (0, lambda c: _partitions(c, struct.pack(">iq", 0, 0)) + struct.pack(">i", 1000)),
    "offset_for_leader_epoch": (2, lambda count: _partitions(count, struct.pack(">iii", 0, -1, 0))),
    "describe_configs": (
        1,
        lambda c: struct.pack(">i", c) + (b"\2" + string("stall") + struct.pack(">i", -1)) * c + b"\0",
    ),
    "describe_log_dirs": (1, lambda count: _partitions(count, struct.pack(">i", 0))),
    "create_partitions": (
        0,
        lambda c: (
            struct.pack(">i", c)
            + b"".join(string(f"t{n}") + struct.pack(">ii", 2, -1) for n in range(c))
            + struct.pack(">i?", 1000, False)
        ),
    ),
    "elect_leaders": (0, lambda c: _partitions(c, struct.pack(">i", 0)) + struct.pack(">i", 1000)),
}


def _most_elements(name: str, array: str) -> int:
    """What the API takes in this array, when one further element holds it."""
    limit = LIMITS[name]
    return min(limit.elements - 1, limit.arrays.get(array, limit.elements))


def all_requests() -> Iterator[tuple[Api, str, int, Body, int]]:
    """API, which array is full, version, the body with so many elements, and how many it takes."""
    for api in APIS.values():
        if api.name in REQUESTS:
            array = next(iter(LIMITS[api.name].arrays), "")
            yield api, "", *REQUESTS[api.name], _most_elements(api.name, array)
        elif api.key != API_VERSIONS:
            message = message_class(api.name, api.max_version, "request")
            for shape in ("wide", "deep"):
                if path := _path(message, shape == "deep"):
                    most = _most_elements(api.name, path[-1].name)
                    yield api, shape, api.max_version, _by_schema(message, shape == "deep"), most


def _path(message: Any, is_deep: bool) -> list[FieldShape]:
    """The array to fill, below the one that has a single element."""
    top = next((field for field in shape_of(message) if field.is_array), None)
    if top is None:
        return []
    if not is_deep:
        return [top]
    inner = next((field for field in shape_of(top.entity) if field.is_array), None) if top.entity else None
    return [top, inner] if inner is not None else []


def _by_schema(message: Any, is_deep: bool) -> Body:
    def body(count: int) -> bytes:
        path = _path(message, is_deep)
        out = io.BytesIO()
        entity_writer(message)(out, _filled(message, path, count, 0))
        return out.getvalue()

    return body


def _filled(entity: Any, path: list[FieldShape], count: int, number: int) -> Any:
    values = {field.name: _value(field, number) for field in shape_of(entity)}
    if path:
        field, *rest = path
        times = count if not rest else 1
        values[field.name] = tuple(
            _filled(field.entity, rest, count, n) if field.entity else _single(field, n) for n in range(times)
        )
    return entity(**values)


def _value(field: FieldShape, number: int) -> Any:
    if field.is_array:
        return () if not field.nullable or field.default is None else field.default
    if field.entity:
        return None if field.nullable else _filled(field.entity, [], 0, number)
    return f"name-{number}" if field.kafka_type == "string" else field.default


def _single(field: FieldShape, number: int) -> Any:
    if field.kafka_type == "string":
        return f"name-{number}"
    return uuid.UUID(int=0) if field.kafka_type == "uuid" else number % 128
