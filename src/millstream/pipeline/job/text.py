"""Reads records that fit no type from their bytes: an Arrow function for `mapInArrow`.

A record holds one JSON object (flat, nested, or the nested form in an envelope) or an array of them, and gives a row
for each. The column `reading` says what is wrong with the text or its types; `judge` then checks the fields. Only the
first row of a record carries its bytes and its key.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from millstream.pipeline.declaration import LABELS, Declaration
from millstream.pipeline.job.judge import READING, RECORD_COLUMNS, RECORD_TYPES, Limits, Reason
from millstream.pipeline.moments import micros, parse_rfc3339
from millstream.pipeline.stores.local_frames import arrow_schema

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_LONGEST_WHOLE = 300
_ROWS_PER_BATCH = 10_000
_FIELDS = ("time", "value_number", "metric", "uuid", *LABELS)
_SCHEMA = (
    f"{RECORD_TYPES}, element int, time timestamp, value_number double, "
    f"{', '.join(f'{name} string' for name in ('metric', 'uuid', *LABELS))}, reading {READING}"
)


class Fault(NamedTuple):
    reason: str
    field: str
    message: str


class _Wrong(Exception):
    def __init__(self, reason: Reason, message: str, field: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(str(reason), field, message)


def text_fields(records: DataFrame, limits: Limits) -> DataFrame:
    """The columns of `typed_fields`; `element` is the index in an array, else null."""
    read = TextReader(limits.declaration, limits.max_record_bytes, arrow_schema(_SCHEMA)).read
    return records.select(*RECORD_COLUMNS).mapInArrow(read, _SCHEMA)


class TextReader:
    def __init__(self, declared: Declaration, largest: int, schema: pa.Schema) -> None:
        self._declared = declared
        self._largest = largest
        self._schema = schema
        self._paths = {
            name: [tuple(path.split(".")) for path in paths] for name, paths in declared.fields.items()
        }

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows: list[tuple[Any, ...]] = []
            columns = [
                batch[name].to_pylist() for name in ("key", "serializedValue", "topic", "partition", "offset")
            ]
            times = batch["timestamp"].cast(pa.int64()).to_pylist()
            for *record, time_us in zip(*columns, times, strict=True):
                rows.extend(self.rows_of(record, time_us))
                if len(rows) >= _ROWS_PER_BATCH:
                    yield self._batch(rows)
                    rows = []
            if rows:
                yield self._batch(rows)

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        columns = zip(*rows, strict=True)
        arrays = [
            _faults(values, field.type) if field.name == "reading" else pa.array(values, field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def rows_of(self, record: list[Any], time_us: int) -> Iterator[tuple[Any, ...]]:
        """The rows of one record, given as key, value, topic, partition and offset."""
        key, data, *position = record
        try:
            document = self._document(data)
        except _Wrong as wrong:
            yield (*record, time_us, None, *_NO_FIELDS, wrong.fault)
            return
        if not isinstance(document, list):
            yield (*record, time_us, None, *self._fields(document))
            return
        for element, body in enumerate(document):
            origin = (None, None) if element else (key, data)
            yield (*origin, *position, time_us, element, *self._fields(body))

    def _document(self, data: bytes | None) -> Any:
        if not data:
            raise _Wrong(Reason.EMPTY, "the record has no value")
        if len(data) > self._largest:
            raise _Wrong(Reason.TOO_LARGE, f"the record has {len(data)} bytes, {self._largest} are allowed")
        if not data.strip(b" \t\r\n"):
            raise _Wrong(Reason.EMPTY, "the record holds only blanks")
        try:
            document = json.loads(data.decode(), parse_int=_whole, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise _Wrong(Reason.MALFORMED_JSON, "the value is not one JSON document in UTF-8") from None
        if document == []:
            raise _Wrong(Reason.EMPTY, "the array holds no record")
        return document

    def _fields(self, body: Any) -> tuple[Any, ...]:
        """Time, value, names and labels, or the error in them."""
        try:
            found = self._read_fields(body)
            for text in found:
                if type(text) is str and not text.isascii():
                    text.encode()
        except _Wrong as wrong:
            return (*_NO_FIELDS, wrong.fault)
        except UnicodeEncodeError:
            return (*_NO_FIELDS, Fault(str(Reason.MALFORMED_JSON), "", "a text holds half a surrogate pair"))
        except RecursionError:
            # A value that could be parsed may still be nested too deeply to be serialized.
            return (*_NO_FIELDS, Fault(str(Reason.MALFORMED_JSON), "", "the value is nested too deeply"))
        return (*found, None)

    def _read_fields(self, body: Any) -> list[Any]:
        names = self._declared.fields
        envelope_key = None
        if isinstance(body, dict) and names["metric"][0] not in body and isinstance(body.get("value"), dict):
            # An envelope has no metric, and its value is an object instead of a number.
            envelope_key, body = body.get("key"), body["value"]
        if not isinstance(body, dict):
            raise _Wrong(Reason.NOT_AN_OBJECT, f"a JSON object was expected, not {_kind(body)}")
        found = {name: self._first(body, name) for name in ("time", "value", "metric", "uuid", *LABELS)}
        found["uuid"] = found["uuid"] or envelope_key
        if self._declared.nested_gpu_id:
            gpu_id = body.get("gpu_id")
            if isinstance(gpu_id, str) and gpu_id[:1].isascii() and gpu_id[:1].isalpha():
                found["uuid"] = self._first(body, "uuid") or gpu_id
                found["gpu_id"] = _member(body, ("labels", "gpu"))
        for name in ("time", "metric", "uuid", "value"):
            if found[name] is None or found[name] == "":
                raise _Wrong(Reason.MISSING_FIELD, f"missing field {names[name][0]}", names[name][0])
        for name in ("metric", "uuid", "hostname"):
            if found[name] is not None and not isinstance(found[name], str):
                raise _wrong_type(names[name][0], "string", found[name])
        for name in LABELS:
            found[name] = _label(found[name], names, name)
        value = _number(found["value"], names["value"][0])
        time_us = _time_us(found["time"], names["time"][0])
        return [time_us, value, *(found[name] for name in _FIELDS[2:])]

    def _first(self, body: dict[str, Any], name: str) -> Any:
        for path in self._paths.get(name, ()):
            found = _member(body, path)
            if found is not None:
                return found
        return None


_NO_FIELDS = (None,) * len(_FIELDS)


def _member(body: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = body
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _label(found: Any, names: dict[str, tuple[str, ...]], name: str) -> str | None:
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, dict | list):
        if name != "labels_raw":
            raise _wrong_type(names[name][0], "string", found)
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(found)


def _number(found: Any, field: str) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        raise _wrong_type(field, "number", found)
    if isinstance(found, str) and _NUMBER.fullmatch(found) is None:
        raise _wrong_type(field, "number", found)
    return float(found)


def _time_us(found: Any, field: str) -> int:
    text = found if isinstance(found, str) else json.dumps(found)
    try:
        return micros(parse_rfc3339(text))
    except (ValueError, OverflowError):
        told = f"{field} is not RFC 3339 such as 2025-07-18T20:42:34Z: {text[:80]}"
        raise _Wrong(Reason.BAD_TIMESTAMP, told.encode(errors="replace").decode(), field) from None


def _wrong_type(field: str, expected: str, found: Any) -> _Wrong:
    message = f"wrong type of {field}: a {expected} was expected, not {_kind(found)}"
    return _Wrong(Reason.WRONG_TYPE, message, field)


def _kind(value: Any) -> str:
    """The JSON name of the type."""
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _whole(digits: str) -> float:
    """A whole number; very long ones become floats, because Python is slow with thousands of digits."""
    return int(digits) if len(digits) < _LONGEST_WHOLE else float(digits)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _faults(values: Iterable[Fault | None], kind: pa.DataType) -> pa.Array:
    return pa.array([None if fault is None else fault._asdict() for fault in values], kind)
