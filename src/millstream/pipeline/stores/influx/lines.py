"""Line protocol, built column by column in Arrow: no Python code runs for a single point.

In measurements and tags, separators are escaped with a backslash. A backslash itself cannot be escaped: before another
character it stands for itself, but at the end it would escape the separator that follows. A line feed would end the
line. Rows whose tags end with a backslash or contain a line feed cannot be written; `Lines.problems` lists them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

POINT_TAGS = {
    "Hostname": "hostname",
    "container": "container",
    "device": "device",
    "gpu_id": "gpu_id",
    "labels_raw": "labels_raw",
    "modelName": "model_name",
    "namespace": "namespace",
    "pod": "pod",
    "uuid": "uuid",
}
"""Columns by tag, sorted by the tags' names, which is the server's own order."""
ROLLUP_TAGS = {"key": "key", "level": "level", "metric": "metric"}
EVENT_TAGS = {"event_id": "event_id", "kind": "kind", "uuid": "uuid"}
"""Rollups and events have only their identity as tags: a change of any other tag would create a second row."""

EVENTS_MEASUREMENT = "events"

_UNWRITABLE = "InfluxDB cannot store a tag with a line feed or with a backslash at its end: "


def rollups_measurement(resolution: str) -> str:
    return f"rollups_{resolution}"


@dataclass(frozen=True, slots=True)
class Lines:
    text: pa.Array
    """One line per row, with its line feed."""
    problems: Mapping[int, str]
    """The reasons why lines must not be sent, by row."""


Encoded = dict[str, pa.DictionaryArray]
LineBuilder = Callable[[pa.RecordBatch], Lines]


def point_lines(batch: pa.RecordBatch) -> Lines:
    value, encoded = batch["value"], _encoded(batch, [*POINT_TAGS.values(), "metric"])
    names, numbers = encoded["metric"].dictionary, encoded["metric"].indices
    nameless = pc.take(pc.or_(pc.equal(names, ""), pc.starts_with(names, "#")), numbers)
    unfit = pc.invert(pc.fill_null(pc.is_finite(value), False))
    problems = _tag_problems(encoded)
    problems |= dict.fromkeys(_rows_where(nameless), "not a name of a measurement")
    problems |= dict.fromkeys(_rows_where(unfit), "InfluxDB stores finite numbers only")
    measurement = pc.take(_escaped(names, ", "), numbers)
    text = _joined(measurement, POINT_TAGS, encoded, [" value=", _text(value)], batch["time"])
    return Lines(text, problems)


def rollup_lines(batch: pa.RecordBatch) -> Lines:
    measurement = pc.binary_join_element_wise("rollups_", batch["resolution"], "")
    fields: list[Any] = []
    for separator, name in zip(" ,,,", ("min", "max", "mean", "p95"), strict=True):
        fields += [f"{separator}{name}=", _text(batch[name])]
    fields += [",count=", _text(batch["count"]), "i", ",hostname=", *_quoted(batch["hostname"])]
    encoded = _encoded(batch, ROLLUP_TAGS.values())
    text = _joined(measurement, ROLLUP_TAGS, encoded, fields, batch["window_start"])
    return Lines(text, _tag_problems(encoded))


def event_lines(batch: pa.RecordBatch) -> Lines:
    fields: list[Any] = [" end=", _micros(batch["end"]), "i"]
    for name in ("hostname", "severity", "status", "message", "evidence"):
        fields += [f",{name}=", *_quoted(batch[name])]
    encoded = _encoded(batch, EVENT_TAGS.values())
    measurement = pa.repeat(EVENTS_MEASUREMENT, batch.num_rows)
    return Lines(_joined(measurement, EVENT_TAGS, encoded, fields, batch["start"]), _tag_problems(encoded))


def _joined(
    measurement: pa.Array, tags: Mapping[str, str], encoded: Encoded, fields: list[Any], time: pa.Array
) -> pa.Array:
    written = [_tag(tag, encoded[column]) for tag, column in tags.items()]
    return pc.binary_join_element_wise(measurement, *written, *fields, " ", _micros(time), "\n", "")


def _tag(tag: str, column: pa.DictionaryArray) -> pa.Array:
    """`,tag=value` for each row, or nothing for an empty value, which a tag must not have."""
    values = column.dictionary
    written = pc.binary_join_element_wise(f",{tag}=", _escaped(values, ",= "), "")
    return pc.take(pc.if_else(pc.equal(values, ""), "", written), column.indices)


def _encoded(batch: pa.RecordBatch, columns: Iterable[str]) -> Encoded:
    """Dictionary-encoded columns, so that the costly work is done only once for each distinct value."""
    return {name: pc.dictionary_encode(pc.fill_null(batch[name], "")) for name in columns}


def _escaped(values: pa.Array, separators: str) -> pa.Array:
    for character in separators:
        values = pc.replace_substring(values, character, "\\" + character)
    return values


def _quoted(column: pa.Array) -> list[Any]:
    text = pc.fill_null(column, "")
    escaped = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    return ['"', escaped, '"']


def _text(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.cast(column, pa.string()), "0")


def _micros(column: pa.Array) -> pa.Array:
    return _text(pc.cast(column, pa.int64()))


def _tag_problems(encoded: Encoded) -> dict[int, str]:
    problems: dict[int, str] = {}
    for name, column in encoded.items():
        values = column.dictionary
        wrong = pc.or_(pc.ends_with(values, "\\"), pc.match_substring(values, "\n"))
        if pc.any(wrong).as_py():
            problems |= dict.fromkeys(_rows_where(pc.take(wrong, column.indices)), f"{_UNWRITABLE}{name}")
    return problems


def _rows_where(mask: pa.Array) -> list[int]:
    rows: list[int] = pc.indices_nonzero(mask).to_pylist()
    return rows
