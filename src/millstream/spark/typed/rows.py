"""Rows of one partition in the frame's layout: keys and values decoded, misfits treated as `mode` says."""

import contextlib
import gc
import logging
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType

from millstream.spark.errors import SourceError
from millstream.spark.typed.formats import decoder_for
from millstream.spark.typed.layout import Layout, Mode
from millstream.spark.typed.types import arrow_type

log = logging.getLogger("millstream.spark")


class MalformedRecord(SourceError):
    """A record does not fit, in mode FAILFAST."""


class TypedRows:
    """Converts batches with the columns of Spark's Kafka source to batches of the layout."""

    def __init__(self, layout: Layout) -> None:
        kinds = {column.name: column.type for column in layout.columns}
        self._layout = layout
        self._schema = pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])
        self._decoders = {
            name: decoder_for(form, kinds.get(name, BinaryType()))
            for name, form in (("key", layout.key_format), ("value", layout.value_format))
            if name in kinds or (name == "value" and layout.corrupt_column is not None)
        }
        self._dropped = 0
        self._first_dropped = ""

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self.typed(batch)
        if self._dropped:
            log.warning("dropped %d malformed records, the first: %s", self._dropped, self._first_dropped)

    def typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with _no_garbage():
            decoded = {name: decoder.decode(batch[name]) for name, decoder in self._decoders.items()}
        bad = {name: each.bad for name, each in decoded.items() if each.bad}
        if bad and self._layout.mode is Mode.FAILFAST:
            raise MalformedRecord(_first_fault(batch, bad))
        columns = []
        for field in self._schema:
            if field.name == self._layout.corrupt_column:
                columns.append(_corrupt(batch["value"], bad.get("value", {}), field.type))
            elif field.name in decoded:
                columns.append(decoded[field.name].column)
            elif field.name == "serializedValue":
                columns.append(batch["value"])
            else:
                columns.append(batch[field.name])
        made = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if bad and self._layout.mode is Mode.DROPMALFORMED:
            return self._without(made, batch, bad)
        return made

    def _without(
        self, made: pa.RecordBatch, batch: pa.RecordBatch, bad: Mapping[str, Mapping[int, str]]
    ) -> pa.RecordBatch:
        gone = sorted({row for rows in bad.values() for row in rows})
        self._first_dropped = self._first_dropped or _first_fault(batch, bad)
        self._dropped += len(gone)
        kept = np.ones(made.num_rows, np.bool_)
        kept[gone] = False
        return made.filter(pa.array(kept))


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Switch off the garbage collector: decoding makes no cycles, but the search for them takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _corrupt(raw: pa.Array, bad: Mapping[int, str], kind: pa.DataType) -> pa.Array:
    """The bytes of the bad rows; as text, invalid UTF-8 is replaced."""
    if not bad:
        return pa.nulls(len(raw), kind)
    mask = np.zeros(len(raw), np.bool_)
    mask[list(bad)] = True
    kept = pc.if_else(pa.array(mask), raw, pa.scalar(None, raw.type))
    if kind == kept.type:
        return kept
    return pa.array(
        [None if data is None else data.decode("utf-8", "replace") for data in kept.to_pylist()], kind
    )


def _first_fault(batch: pa.RecordBatch, bad: Mapping[str, Mapping[int, str]]) -> str:
    """The place of the first bad row, and the reason."""
    row, name = min((min(rows), name) for name, rows in bad.items())
    place = f"{batch['topic'][row].as_py()}-{batch['partition'][row].as_py()}"
    return f"the {name} at offset {batch['offset'][row].as_py()} of {place} does not fit: {bad[name][row]}"
