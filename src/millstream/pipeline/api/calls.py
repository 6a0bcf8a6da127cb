"""The calls of the API in one table: routes, checks of parameters and the OpenAPI document all come from it.

Parameters are read strictly, so that a misspelt one is an error and not an answer to another question.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import orjson

from millstream import __version__
from millstream.http.messages import Problem
from millstream.pipeline.history import history_between, read_status
from millstream.pipeline.metrics import METRICS
from millstream.pipeline.moments import parse_rfc3339
from millstream.pipeline.stores import rows
from millstream.pipeline.stores.base import (
    EventQuery,
    GpuQuery,
    LatestQuery,
    Page,
    RollupQuery,
    StoreReader,
    TelemetryQuery,
)

Json = dict[str, Any]

_MAX_PARAMETERS = 64
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
_EXAMPLE = "2026-03-01T12:00:00Z"


class VisibleStatus(StrEnum):
    """What a caller may ask for: retracted events are nobody's business."""

    OPEN = rows.EventStatus.OPEN.value
    CLOSED = rows.EventStatus.CLOSED.value


class EventAnswer(rows.Event, frozen=True):
    """An event with its evidence as an object."""

    evidence: dict[str, Any]  # type: ignore[assignment]


class Minute(msgspec.Struct, frozen=True):
    """How the job went in a minute."""

    time: datetime
    rows_per_second: float
    lag: int


class Health(msgspec.Struct, frozen=True):
    status: str
    timestamp: datetime


@dataclass(frozen=True, slots=True)
class Parameter:
    """A text unless `schema` says otherwise. `field` is what the store's query calls it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    required: bool = False
    field: str = ""
    choices: type[StrEnum] | None = None

    def read(self, text: str | None, call: str) -> Any:
        """Its value, from what was given; an empty one was not given."""
        if not text:
            if self.required:
                raise bad_request(f"{self.name} is required: a time such as {_EXAMPLE}")
            return None if self.choices is None and self.name != "limit" else self._default()
        if self.choices is not None:
            try:
                return self.choices(text)
            except ValueError as error:
                raise bad_request(
                    f"{self.name} is {_shown(text)}; it may be {', '.join(self.choices)}"
                ) from error
        if self.name == "limit":
            most = self.schema["maximum"]
            if not _INTEGER.fullmatch(text) or not 1 <= int(text) <= most:
                raise bad_request(f"limit is {_shown(text)}; it must be a whole number from 1 to {most}")
            return int(text)
        if self.name == "cursor":
            return _read_cursor(text, call)
        return _read_time(self.name, text) if self.schema.get("format") == "date-time" else text

    def _default(self) -> Any:
        default = self.schema.get("default")
        return self.choices(default) if self.choices is not None and default is not None else default


def _text(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "string"})


def _choice(name: str, description: str, kind: type[StrEnum], default: str | None = None) -> Parameter:
    schema: Json = {"type": "string", "enum": [each.value for each in kind]}
    return Parameter(
        name, description, schema | ({"default": default} if default is not None else {}), choices=kind
    )


def _limit(default: int, maximum: int) -> Parameter:
    schema = {"type": "integer", "minimum": 1, "maximum": maximum, "default": default}
    return Parameter("limit", "The most rows of one answer.", schema)


def _times(*, required: bool) -> tuple[Parameter, Parameter]:
    schema = {"type": "string", "format": "date-time"}
    return (
        Parameter("start_time", "The first moment, inclusive (RFC 3339).", schema, required, "start"),
        Parameter("end_time", "The last moment, inclusive (RFC 3339).", schema, required, "end"),
    )


_TIMES = _times(required=False)
_CURSOR = _text("cursor", "`next_cursor` of the page before.")
_HOSTNAME, _METRIC = _text("hostname", "Only of this host."), _text("metric", "Only this metric.")
_UUID = Parameter("uuid", "The GPU's uuid.", {"type": "string"}, required=True)
_LIST_LIMIT = _limit(1_000, 10_000)
_WIDE_LIMIT = _limit(10_000, 100_000)
"""Of calls whose callers may know no cursors: all GPUs, or an hour of one."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the calls answer from."""

    store: StoreReader
    status_path: Path | None


Answer = Callable[[Sources, "Call", Json], Json]
"""Runs in a thread of its own and may take its time."""


@dataclass(frozen=True, slots=True)
class Call:
    path: str
    name: str
    summary: str
    row: type[msgspec.Struct] | None
    """Of what the answer is a list; None for an object of its own."""
    answer: Answer
    parameters: tuple[Parameter, ...] = ()
    path_parameters: tuple[Parameter, ...] = ()
    rows_name: str = ""

    def values(self, query: bytes, path: Mapping[str, str]) -> Json:
        """What was asked for, by the names that the store's query has for it."""
        given = _given(query, [each.name for each in self.parameters])
        if not all(value.isprintable() for value in path.values()):
            raise bad_request("the path contains characters that cannot be printed")
        values = {
            each.field or each.name: each.read(given.get(each.name), self.name) for each in self.parameters
        }
        start, end = values.get("start"), values.get("end")
        if start is not None and end is not None and start > end:
            raise bad_request("start_time is after end_time")
        return {**path, **values}

    def listed(self, found: "Page[Any] | Sequence[Any]") -> Json:
        rows = found.rows if isinstance(found, Page) else found
        document: Json = {"count": len(rows), self.rows_name or self.name: rows}
        if isinstance(found, Page):
            cursor = found.next_cursor
            place = None if cursor is None else orjson.dumps([self.name, *cursor])
            document["next_cursor"] = None if place is None else base64.urlsafe_b64encode(place).decode()
        return document


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
    """Where the last page of `call` ended."""
    try:
        tag, *values = orjson.loads(base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, TypeError, binascii.Error) as error:
        raise bad_request("the cursor was not given out here; start again without one") from error
    if tag != call or not all(isinstance(value, str | int) for value in values):
        raise bad_request("the cursor belongs to another call; start again without one")
    return list(values)


def _read_time(name: str, text: str) -> datetime:
    try:
        # A plus that nobody encoded arrives as a space.
        return parse_rfc3339(text[:10] + text[10:].replace(" ", "+"))
    except (ValueError, OverflowError) as error:
        told = f"{name} is {_shown(text)}, which is not a time: it must be RFC 3339 such as {_EXAMPLE}"
        raise bad_request(told) from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _asked(query: type[Any], sources: Sources, call: Call, values: Json) -> Json:
    """Ask the store what it calls as the call is called."""
    return call.listed(getattr(sources.store, call.name)(query(**values)))


def _telemetry(sources: Sources, call: Call, values: Json) -> Json:
    found, uuid = sources.store.telemetry(TelemetryQuery(**values)), values["uuid"]
    if not found.rows and sources.store.gpu(uuid) is None:
        raise Problem(404, f"unknown GPU {uuid!r}; /api/v1/gpus lists those that are known")
    return {"gpu_id": uuid} | call.listed(found)


def _metrics(sources: Sources, call: Call, values: Json) -> Json:
    del values
    counted = sources.store.metrics()
    known = ((row, METRICS[row.metric]) for row in counted if row.metric in METRICS)
    told = {row: msgspec.structs.replace(row, unit=metric.unit, kind=metric.kind) for row, metric in known}
    return call.listed([told.get(row, row) for row in counted])


def _events(sources: Sources, call: Call, values: Json) -> Json:
    page = sources.store.events(EventQuery(**values))
    return call.listed(Page(tuple(map(event_answer, page.rows)), page.next_cursor))


def event_answer(event: rows.Event) -> EventAnswer:
    """The store may have been filled by somebody else."""
    try:
        found = orjson.loads(event.evidence)
    except ValueError:
        found = event.evidence
    evidence = found if isinstance(found, dict) else {"evidence": found}
    return EventAnswer(**{**msgspec.structs.asdict(event), "evidence": evidence})


def _history(sources: Sources, call: Call, values: Json) -> Json:
    path = sources.status_path
    return call.listed(history_between(path and path.with_name("history.jsonl"), **values))


CALLS = (
    Call(
        "/api/v1/gpus", "gpus", "The GPUs that have sent telemetry, by uuid.", rows.Gpu,
        partial(_asked, GpuQuery), (_HOSTNAME, _WIDE_LIMIT, _CURSOR),
    ),
    Call(
        "/api/v1/gpus/{uuid}/telemetry", "telemetry", "The points of one GPU, by time and metric.", rows.Point,
        _telemetry, (*_times(required=True), _METRIC, _WIDE_LIMIT, _CURSOR), (_UUID,), "data",
    ),
    Call("/api/v1/hosts", "hosts", "The hosts, their GPUs and when they were seen last.", rows.Host,
         lambda sources, call, _: call.listed(sources.store.hosts())),
    Call("/api/v1/metrics", "metrics", "The metrics that have points.", rows.MetricCount, _metrics),
    Call(
        "/api/v1/rollups", "rollups", "Minimum, maximum, mean, 95th percentile and count by the minute or hour.",
        rows.Rollup, partial(_asked, RollupQuery),
        (
            _choice("resolution", "Of minutes or of hours.", rows.Resolution, "1m"),
            _choice("level", "Of GPUs, of hosts, or of the whole fleet.", rows.Level),
            _text("key", "The GPU's uuid, the host's name, or `fleet`."), _METRIC, *_TIMES, _LIST_LIMIT, _CURSOR,
        ),
    ),
    Call(
        "/api/v1/events", "events", "Health events that overlap the given time, the newest first.", EventAnswer,
        _events,
        (
            _text("kind", "Only of this kind."), _choice("severity", "Only of this severity.", rows.Severity),
            _text("uuid", "Only of this GPU."), _HOSTNAME,
            _choice("status", "Only those still open, or those that ended.", VisibleStatus),
            *_TIMES, _LIST_LIMIT, _CURSOR,
        ),
    ),
    Call(
        "/api/v1/latest", "latest", "The newest value of each GPU and metric.", rows.LatestValue,
        partial(_asked, LatestQuery), (_METRIC, _HOSTNAME, _WIDE_LIMIT),
    ),
    Call(
        "/api/v1/pipeline", "pipeline", "What the job says about itself: throughput, lag, counts; `running` tells "
        "whether it said so in the last 30 seconds.", None,
        lambda sources, _call, _values: read_status(sources.status_path),
    ),
    Call(
        "/api/v1/pipeline/history", "history", "Rows a second and lag of the job, by the minute.", Minute, _history,
        _TIMES,
    ),
)  # fmt: skip

_PROBLEMS = {
    "400": "A parameter is wrong; the error names it.",
    "401": "The token is missing or wrong.",
    "404": "There is no such GPU.",
    "503": "The store cannot be read now.",
}
_COUNT: Json = {"type": "integer", "minimum": 0}
_NEXT_CURSOR: Json = {"type": ["string", "null"], "description": "For the next page; null at the end."}


def openapi_document(*, has_token: bool = False) -> Json:
    """The OpenAPI 3.1 document of the API."""
    rows = [*(call.row for call in CALLS if call.row is not None), Health]
    _, schemas = msgspec.json.schema_components(rows, ref_template="#/components/schemas/{name}")
    schemas["Error"] = _object({"error": {"type": "string"}})
    paths = {call.path: {"get": _operation(call, has_token=has_token)} for call in CALLS}
    paths["/health"] = {
        "get": {
            "operationId": "health",
            "summary": "Whether this server answers.",
            "responses": {"200": _response("The answer.", _reference("Health"))},
        }
    }
    components: Json = {"schemas": schemas}
    if has_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream telemetry",
            "version": __version__,
            "description": "Telemetry of a fleet of GPUs: points, rollups and health events.",
        },
        "paths": paths,
        "components": components,
    }


def _operation(call: Call, *, has_token: bool) -> Json:
    statuses = ["400", "503", *(["404"] if call.path_parameters else []), *(["401"] if has_token else [])]
    if call.row is None:
        schema = _object({"running": {"type": "boolean"}})
    else:
        properties: Json = {
            "count": _COUNT,
            call.rows_name or call.name: {"type": "array", "items": _reference(call.row.__name__)},
        }
        if _CURSOR in call.parameters:
            properties["next_cursor"] = _NEXT_CURSOR
        schema = _object(properties)
    placed = [(each, "path") for each in call.path_parameters] + [(each, "query") for each in call.parameters]
    return {
        "operationId": call.name,
        "summary": call.summary,
        "parameters": [
            {
                "name": each.name,
                "in": place,
                "description": each.description,
                "required": each.required,
                "schema": dict(each.schema),
            }
            for each, place in placed
        ],
        "responses": {"200": _response("The answer.", schema)}
        | {status: _response(_PROBLEMS[status], _reference("Error")) for status in statuses},
    } | ({"security": [{"token": []}]} if has_token else {})


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _response(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
