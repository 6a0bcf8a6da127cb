"""The calls of the API, which `openapi.yaml` names: the checks of their parameters, and their answers.

Parameters are read strictly: a misspelt one is an error, not an answer to another question.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import orjson

from millstream import __version__
from millstream.http.messages import Problem
from millstream.pipeline.declaration import DCGM
from millstream.pipeline.history import history_between, read_status
from millstream.pipeline.moments import parse_rfc3339
from millstream.pipeline.stores import base, rows

Json = dict[str, Any]

_MAX_PARAMETERS = 64
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
_EXAMPLE = "2026-03-01T12:00:00Z"
_FIELDS = {"start_time": "start", "end_time": "end"}
"""Parameters that have another name in the store's query."""


class EventAnswer(rows.Event, frozen=True):
    """An event with its evidence as an object."""

    evidence: dict[str, Any]  # type: ignore[assignment]


class Minute(msgspec.Struct, frozen=True):
    """The job's throughput and lag in one minute."""

    time: datetime
    rows_per_second: float
    lag: int


class Health(msgspec.Struct, frozen=True):
    status: str
    timestamp: datetime


@dataclass(frozen=True, slots=True)
class Sources:
    """The data that the calls answer from."""

    store: base.StoreReader
    status_path: Path | None


Answer = Callable[[Sources, "Call", Json], Json]
"""Runs in a thread of its own and may take its time."""


@dataclass(frozen=True, slots=True)
class Call:
    path: str
    name: str
    parameters: tuple[Json, ...]
    """The query's parameters, in OpenAPI's form."""
    answer: Answer

    def values(self, query: bytes, path: Mapping[str, str]) -> Json:
        """The values of the parameters, by their names in the store's query."""
        given = _given(query, [each["name"] for each in self.parameters])
        if not all(value.isprintable() for value in path.values()):
            raise bad_request("the path contains characters that cannot be printed")
        values = {each["name"]: self._read(each, given.get(each["name"])) for each in self.parameters}
        values = {_FIELDS.get(name, name): value for name, value in values.items()}
        start, end = values.get("start"), values.get("end")
        if start is not None and end is not None and start > end:
            raise bad_request("start_time is after end_time")
        return {**path, **values}

    def listed(self, found: "base.Page[Any] | Sequence[Any]", rows_name: str = "") -> Json:
        rows = found.rows if isinstance(found, base.Page) else found
        document: Json = {"count": len(rows), rows_name or self.name: rows}
        if isinstance(found, base.Page):
            cursor = found.next_cursor
            place = None if cursor is None else orjson.dumps([self.name, *cursor])
            document["next_cursor"] = None if place is None else base64.urlsafe_b64encode(place).decode()
        return document

    def _read(self, parameter: Json, text: str | None) -> Any:
        """The value of a parameter; an empty one counts as missing."""
        name, schema = parameter["name"], parameter["schema"]
        if not text:
            if parameter["required"]:
                raise bad_request(f"{name} is required: a time such as {_EXAMPLE}")
            return schema.get("default")
        if "enum" in schema and text not in schema["enum"]:
            raise bad_request(f"{name} is {_shown(text)}; it may be {', '.join(schema['enum'])}")
        if schema["type"] == "integer":
            most = schema["maximum"]
            if not _INTEGER.fullmatch(text) or not 1 <= int(text) <= most:
                raise bad_request(f"{name} is {_shown(text)}; it must be a whole number from 1 to {most}")
            return int(text)
        if name == "cursor":
            return _read_cursor(text, self.name)
        return _read_time(name, text) if schema.get("format") == "date-time" else text


def bad_request(message: str) -> Problem:
    return Problem(400, message)


def _given(query: bytes, known: Sequence[str]) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
        )
    except ValueError as error:
        raise bad_request("the query string cannot be read: it must be percent-encoded UTF-8") from error
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            allowed = f"; it may be {', '.join(known)}" if known else "; this call has none"
            raise bad_request(f"unknown parameter {_shown(name)}{allowed}")
        if name in given:
            raise bad_request(f"parameter {name} is given twice")
        if not value.isprintable():
            raise bad_request(f"parameter {name} contains characters that cannot be printed")
        given[name] = value
    return given


def _read_cursor(text: str, call: str) -> list[str | int]:
    """The position in a cursor: where the last page of `call` ended."""
    try:
        tag, *values = orjson.loads(base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, TypeError, binascii.Error) as error:
        raise bad_request("the cursor was not given out here; start again without one") from error
    if tag != call or not all(isinstance(value, str | int) for value in values):
        raise bad_request("the cursor belongs to another call; start again without one")
    return list(values)


def _read_time(name: str, text: str) -> datetime:
    try:
        # A plus sign that was not percent-encoded arrives as a space.
        return parse_rfc3339(text[:10] + text[10:].replace(" ", "+"))
    except (ValueError, OverflowError) as error:
        told = f"{name} is {_shown(text)}, which is not a time: it must be RFC 3339 such as {_EXAMPLE}"
        raise bad_request(told) from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _asked(query: type[Any], sources: Sources, call: Call, values: Json) -> Json:
    """Answer by the store's method that has the same name as the call."""
    return call.listed(getattr(sources.store, call.name)(query(**values)))


def _telemetry(sources: Sources, call: Call, values: Json) -> Json:
    found, uuid = sources.store.telemetry(base.TelemetryQuery(**values)), values["uuid"]
    if not found.rows and sources.store.gpu(uuid) is None:
        raise Problem(404, f"unknown GPU {uuid!r}; /api/v1/gpus lists those that are known")
    return {"gpu_id": uuid} | call.listed(found, "data")


def _metrics(sources: Sources, call: Call, values: Json) -> Json:
    del values
    counted = sources.store.metrics()
    known = ((row, DCGM.metrics[row.metric]) for row in counted if row.metric in DCGM.metrics)
    told = {row: msgspec.structs.replace(row, unit=metric.unit, kind=metric.kind) for row, metric in known}
    return call.listed([told.get(row, row) for row in counted])


def _events(sources: Sources, call: Call, values: Json) -> Json:
    page = sources.store.events(base.EventQuery(**values))
    return call.listed(base.Page(tuple(map(event_answer, page.rows)), page.next_cursor))


def event_answer(event: rows.Event) -> EventAnswer:
    """The event with its evidence as an object. Another program may have filled the store, so any text is accepted."""
    try:
        found = orjson.loads(event.evidence)
    except ValueError:
        found = event.evidence
    evidence = found if isinstance(found, dict) else {"evidence": found}
    return EventAnswer(**{**msgspec.structs.asdict(event), "evidence": evidence})


def _history(sources: Sources, call: Call, values: Json) -> Json:
    path = sources.status_path
    return call.listed(history_between(path and path.with_name("history.jsonl"), **values))


_ANSWERS: dict[str, Answer] = {
    "gpus": partial(_asked, base.GpuQuery),
    "telemetry": _telemetry,
    "hosts": lambda sources, call, _: call.listed(sources.store.hosts()),
    "metrics": _metrics,
    "rollups": partial(_asked, base.RollupQuery),
    "events": _events,
    "latest": partial(_asked, base.LatestQuery),
    "pipeline": lambda sources, _call, _values: read_status(sources.status_path),
    "history": _history,
}
_ROWS = (
    rows.Gpu, rows.Point, rows.Host, rows.MetricCount, rows.Rollup, EventAnswer, rows.LatestValue, Minute, Health,
)  # fmt: skip


def openapi_document(*, has_token: bool = False) -> Json:
    """The OpenAPI 3.1 document of the API."""
    document: Json = msgspec.yaml.decode(files(__package__).joinpath("openapi.yaml").read_bytes())
    shared = document.pop("shared")
    document["info"]["version"] = __version__
    _, schemas = msgspec.json.schema_components(_ROWS, ref_template="#/components/schemas/{name}")
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    document["components"] = {"schemas": schemas | {"Error": error}}
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path in document["paths"].keys() - {"/health"}:
            operation, refused = document["paths"][path]["get"], "The token is missing or wrong."
            operation["responses"]["401"] = {"description": refused, "content": shared["error"]}
            operation["security"] = [{"token": []}]
    return document


def _calls() -> Iterator[Call]:
    for path, methods in openapi_document()["paths"].items():
        name, parameters = methods["get"]["operationId"], methods["get"].get("parameters", ())
        if name in _ANSWERS:
            in_query = tuple(each for each in parameters if each["in"] == "query")
            yield Call(path, name, in_query, _ANSWERS[name])


CALLS = tuple(_calls())
