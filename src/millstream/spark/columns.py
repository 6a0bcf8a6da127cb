"""Decodes whole record batches of one partition into Arrow columns with Spark's exact types."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.protocol.record_batch import BatchHeader
from millstream.spark import kernels
from millstream.spark.errors import SourceError

Bytes = npt.NDArray[np.uint8]

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
SCHEMA = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS_TYPE)])


class BadRecords(SourceError):
    """The bytes are not a valid batch; another replica may have a valid one."""


class UnreadableBatch(BadRecords):
    """A batch whose records do not match its header."""


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch's header, and the position of its uncompressed records."""

    header: BatchHeader
    data: Bytes
    start: int
    end: int


@dataclass(slots=True)
class _Binary:
    """Offsets, bytes and validity of a column of byte strings; its bytes never exceed the decoded data."""

    offsets: npt.NDArray[np.int32]
    data: Bytes
    valid: npt.NDArray[np.bool_]

    @classmethod
    def sized(cls, rows: int, size_bytes: int) -> "_Binary":
        offsets = np.empty(rows + 1, np.int32)
        offsets[0] = 0
        return cls(offsets, np.empty(size_bytes, np.uint8), np.empty(rows, np.bool_))

    def array(self, rows: int, kind: pa.DataType) -> pa.Array:
        used = int(self.offsets[rows])
        buffers = [_bitmap(self.valid[:rows]), pa.py_buffer(self.offsets[: rows + 1])]
        return pa.Array.from_buffers(kind, rows, [*buffers, pa.py_buffer(self.data[:used])])


@dataclass(slots=True)
class Columns:
    """Collects open batches of one partition and turns them into one Arrow batch."""

    topic: str
    partition: int
    include_headers: bool
    _constants: "_Constants" = field(init=False)

    def __post_init__(self) -> None:
        self._constants = _Constants(self.topic, self.partition)

    def build(self, batches: list[OpenBatch], low: int, high: int) -> pa.RecordBatch:
        """The records with low <= offset < high."""
        room = sum(batch.header.record_count for batch in batches)
        size = sum(batch.end - batch.start for batch in batches)
        offsets, times = np.empty(room, np.int64), np.empty(room, np.int64)
        types = np.empty(room, np.int32)
        keys, values = _Binary.sized(room, size), _Binary.sized(room, size)
        spans = np.empty((room if self.include_headers else 0, 2), np.int64)
        at = np.zeros(1, np.int64)
        rows_of: list[tuple[OpenBatch, int, int]] = []
        for batch in batches:
            head, first = batch.header, int(at[0])
            status = kernels.decode_records(
                batch.data, batch.start, batch.end, head.record_count,
                head.base_offset, head.last_offset_delta, head.base_timestamp,
                head.max_timestamp, head.log_append_time, low, high, self.include_headers,
                at, offsets, times, keys.offsets, keys.valid, keys.data,
                values.offsets, values.valid, values.data, spans,
            )  # fmt: skip
            if status != kernels.OK:
                raise UnreadableBatch(
                    f"the batch at offset {head.base_offset} of {self.topic}-{self.partition} cannot be read: "
                    f"{kernels.REASONS[status]}"
                )
            rows = int(at[0])
            types[first:rows] = head.log_append_time
            rows_of.append((batch, first, rows - first))
        rows = int(at[0])
        topic, partition = self._constants.of(rows)
        columns = [
            keys.array(rows, pa.binary()),
            values.array(rows, pa.binary()),
            topic,
            partition,
            _plain(pa.int64(), offsets, rows),
            _plain(pa.timestamp("us", tz="UTC"), times, rows),
            _plain(pa.int32(), types, rows),
        ]
        if not self.include_headers:
            return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        columns.append(_headers(rows_of, spans, rows, size))
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_HEADERS)


class _Constants:
    """The columns topic and partition, which are the same in every row: made once, then sliced."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._rows = 0
        self._arrays: tuple[pa.Array, pa.Array] | None = None

    def of(self, rows: int) -> tuple[pa.Array, pa.Array]:
        if self._arrays is None or rows > self._rows:
            name = self._topic.encode()
            offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(name))
            data = np.tile(np.frombuffer(name, np.uint8), rows)
            names = pa.Array.from_buffers(
                pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            )
            self._arrays = names, _plain(pa.int32(), np.full(rows, self._partition, np.int32), rows)
            self._rows = rows
        topics, partitions = self._arrays
        return topics.slice(0, rows), partitions.slice(0, rows)


def _plain(kind: pa.DataType, values: npt.NDArray[np.generic], rows: int) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values[:rows])])


def _bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _headers(
    rows_of: list[tuple[OpenBatch, int, int]], spans: npt.NDArray[np.int64], rows: int, size: int
) -> pa.Array:
    """The column of headers; null for a record without headers, as in Spark's Kafka source."""
    count = int(spans[:rows, 1].sum())
    list_offsets, list_valid = np.empty(rows + 1, np.int32), np.empty(rows, np.bool_)
    list_offsets[0] = 0
    names, values = _Binary.sized(count, size), _Binary.sized(count, size)
    names.valid[:] = True
    for batch, first, number in rows_of:
        kernels.decode_headers(
            batch.data, batch.end, spans, first, number, list_offsets, list_valid,
            names.offsets, names.data, values.offsets, values.valid, values.data,
        )  # fmt: skip
    pairs = pa.StructArray.from_arrays(
        [_text(names.array(count, pa.string())), values.array(count, pa.binary())],
        fields=list(HEADERS_TYPE.value_type),
    )
    buffers = [_bitmap(list_valid), pa.py_buffer(list_offsets)]
    return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, children=[pairs])


def _text(names: pa.Array) -> pa.Array:
    """Header names as text. Invalid UTF-8 gets replacement characters, as in Java; only then is this slow."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = names.cast(pa.binary()).to_pylist()
        return pa.array([name.decode("utf-8", "replace") for name in raw], pa.string())
    return names


def load() -> None:
    """Compile the loops, or load them from the cache, before there is anything to decode."""
    nothing = np.empty(0, np.uint8)
    header = BatchHeader(0, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
    Columns("", 0, include_headers=True).build([OpenBatch(header, nothing, 0, 0)], 0, 0)
