"""The calls of the API in one table: routes, checks of parameters and the OpenAPI document all come from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from millstream.http.messages import Problem
from millstream.pipeline.api import answers, schemas
from millstream.pipeline.api.answers import Json, listed
from millstream.pipeline.api.parameters import Limits, Parameters, check_order, write_cursor
from millstream.pipeline.stores.base import StoreReader
from millstream.pipeline.stores.query import EventQuery, GpuQuery, LatestQuery, RollupQuery, TelemetryQuery
from millstream.pipeline.stores.rows import EventStatus, Level, Resolution, Severity

LIST_LIMITS = Limits(1_000, 10_000)
WIDE_LIMITS = Limits(10_000, 100_000)
"""Of calls whose callers may know no cursors: all GPUs, or an hour of one."""


class VisibleStatus(StrEnum):
    """What a caller may ask for: retracted events are nobody's business."""

    OPEN = EventStatus.OPEN.value
    CLOSED = EventStatus.CLOSED.value


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    description: str
    schema: Mapping[str, Any]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """`answer` runs in a thread of its own and may take its time."""

    path: str
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    answer: Callable[[StoreReader, Parameters, Mapping[str, str]], Json]
    schema: Mapping[str, Any]
    path_parameters: tuple[Parameter, ...] = ()


def _text(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "string"})


def _choice(name: str, description: str, kind: type[Any], default: str | None = None) -> Parameter:
    schema: dict[str, Any] = {"type": "string", "enum": [each.value for each in kind]}
    return Parameter(name, description, schema | ({"default": default} if default is not None else {}))


def _limit(limits: Limits) -> Parameter:
    schema = {"type": "integer", "minimum": 1, "maximum": limits.maximum, "default": limits.default}
    return Parameter("limit", "The most rows of one answer.", schema)


def _times(*, required: bool) -> tuple[Parameter, Parameter]:
    schema = {"type": "string", "format": "date-time"}
    return (
        Parameter("start_time", "The first moment, inclusive (RFC 3339).", schema, required),
        Parameter("end_time", "The last moment, inclusive (RFC 3339).", schema, required),
    )


TIMES = _times(required=False)
_CURSOR = _text("cursor", "`next_cursor` of the page before.")
_HOSTNAME = _text("hostname", "Only of this host.")
_METRIC = _text("metric", "Only this metric.")
_UUID = Parameter("uuid", "The GPU's uuid.", {"type": "string"}, required=True)


def _gpus(store: StoreReader, given: Parameters, path: Mapping[str, str]) -> Json:
    del path
    query = GpuQuery(
        hostname=given.text("hostname"), limit=given.limit(WIDE_LIMITS), cursor=given.cursor("gpus")
    )
    page = store.gpus(query)
    found = listed("gpus", [answers.gpu(row) for row in page.rows])
    return found | {"next_cursor": write_cursor("gpus", page.next_cursor)}


def _telemetry(store: StoreReader, given: Parameters, path: Mapping[str, str]) -> Json:
    uuid = path["uuid"]
    start, end = given.required_time("start_time"), given.required_time("end_time")
    check_order(start, end)
    query = TelemetryQuery(
        uuid, start, end, given.text("metric"), limit=given.limit(WIDE_LIMITS), cursor=given.cursor("telemetry")
    )  # fmt: skip
    page = store.telemetry(query)
    if not page.rows and store.gpu(uuid) is None:
        raise Problem(404, f"unknown GPU {uuid!r}; /api/v1/gpus lists those that are known")
    found = listed("data", [answers.point(row) for row in page.rows])
    return {"gpu_id": uuid} | found | {"next_cursor": write_cursor("telemetry", page.next_cursor)}


def _hosts(store: StoreReader, given: Parameters, path: Mapping[str, str]) -> Json:
    del given, path
    return listed("hosts", [answers.host(row) for row in store.hosts()])


def _metrics(store: StoreReader, given: Parameters, path: Mapping[str, str]) -> Json:
    del given, path
    return listed("metrics", [answers.metric(row) for row in store.metrics()])


def _rollups(store: StoreReader, given: Parameters, path: Mapping[str, str]) -> Json:
    del path
    start, end = given.time("start_time"), given.time("end_time")
    check_order(start, end)
    query = RollupQuery(
        given.choice("resolution", Resolution) or Resolution.MINUTE, level=given.choice("level", Level),
        key=given.text("key"), metric=given.text("metric"), start=start, end=end,
        limit=given.limit(LIST_LIMITS), cursor=given.cursor("rollups"),
    )  # fmt: skip
    page = store.rollups(query)
    found = listed("rollups", [answers.rollup(row) for row in page.rows])
    return found | {"next_cursor": write_cursor("rollups", page.next_cursor)}


def _events(store: StoreReader, given: Parameters, path: Mapping[str, str]) -> Json:
    del path
    start, end = given.time("start_time"), given.time("end_time")
    check_order(start, end)
    status = given.choice("status", VisibleStatus)
    query = EventQuery(
        kind=given.text("kind"), severity=given.choice("severity", Severity), uuid=given.text("uuid"),
        hostname=given.text("hostname"), status=EventStatus(status) if status is not None else None,
        start=start, end=end, limit=given.limit(LIST_LIMITS), cursor=given.cursor("events"),
    )  # fmt: skip
    page = store.events(query)
    found = listed("events", [answers.event(row) for row in page.rows])
    return found | {"next_cursor": write_cursor("events", page.next_cursor)}


def _latest(store: StoreReader, given: Parameters, path: Mapping[str, str]) -> Json:
    del path
    query = LatestQuery(given.text("metric"), given.text("hostname"), given.limit(WIDE_LIMITS))
    return listed("latest", [answers.latest(row) for row in store.latest(query)])


CALLS = (
    Call(
        "/api/v1/gpus", "gpus", "The GPUs that have sent telemetry, by uuid.",
        (_HOSTNAME, _limit(WIDE_LIMITS), _CURSOR), _gpus, schemas.page("gpus", schemas.GPU),
    ),
    Call(
        "/api/v1/gpus/{uuid}/telemetry", "telemetry", "The points of one GPU, by time and metric.",
        (*_times(required=True), _METRIC, _limit(WIDE_LIMITS), _CURSOR), _telemetry, schemas.TELEMETRY,
        (_UUID,),
    ),
    Call(
        "/api/v1/hosts", "hosts", "The hosts, their GPUs and when they were seen last.",
        (), _hosts, schemas.listed("hosts", schemas.HOST),
    ),
    Call(
        "/api/v1/metrics", "metrics", "The metrics that have points.",
        (), _metrics, schemas.listed("metrics", schemas.METRIC),
    ),
    Call(
        "/api/v1/rollups", "rollups", "Minimum, maximum, mean, 95th percentile and count by the minute or hour.",
        (
            _choice("resolution", "Of minutes or of hours.", Resolution, "1m"),
            _choice("level", "Of GPUs, of hosts, or of the whole fleet.", Level),
            _text("key", "The GPU's uuid, the host's name, or `fleet`."), _METRIC, *TIMES,
            _limit(LIST_LIMITS), _CURSOR,
        ),
        _rollups, schemas.page("rollups", schemas.ROLLUP),
    ),
    Call(
        "/api/v1/events", "events", "Health events that overlap the given time, the newest first.",
        (
            _text("kind", "Only of this kind."), _choice("severity", "Only of this severity.", Severity),
            _text("uuid", "Only of this GPU."), _HOSTNAME,
            _choice("status", "Only those still open, or those that ended.", VisibleStatus),
            *TIMES, _limit(LIST_LIMITS), _CURSOR,
        ),
        _events, schemas.page("events", schemas.EVENT),
    ),
    Call(
        "/api/v1/latest", "latest", "The newest value of each GPU and metric.",
        (_METRIC, _HOSTNAME, _limit(WIDE_LIMITS)), _latest, schemas.listed("latest", schemas.LATEST),
    ),
)  # fmt: skip
