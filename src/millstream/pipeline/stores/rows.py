"""The rows of a store as frozen values, with times in UTC, and their tables as Spark DDL.

The values have the same names in JSON as in the query API.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from millstream.pipeline.moments import moment

RowT = TypeVar("RowT", bound=msgspec.Struct)
_AS_COLLECTORS_SAY = {"model_name": "modelName", "hostname": "Hostname"}


class Resolution(StrEnum):
    MINUTE = "1m"
    HOUR = "1h"


class Level(StrEnum):
    GPU = "gpu"
    HOST = "host"
    FLEET = "fleet"


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class EventStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    RETRACTED = "retracted"
    """Later data showed that the event never happened; readers do not see it."""


class Point(msgspec.Struct, frozen=True, rename=_AS_COLLECTORS_SAY | {"device": "device_id"}):
    time: datetime
    uuid: str
    metric: str
    value: float
    gpu_id: str
    device: str
    model_name: str
    hostname: str
    container: str
    pod: str
    namespace: str
    labels_raw: str


class Rollup(msgspec.Struct, frozen=True):
    resolution: Resolution
    window_start: datetime
    level: Level
    key: str
    hostname: str
    metric: str
    min: float
    max: float
    mean: float
    p95: float
    count: int


class Event(msgspec.Struct, frozen=True):
    event_id: str
    kind: str
    severity: Severity
    uuid: str
    hostname: str
    start: datetime
    end: datetime
    status: EventStatus
    message: str
    evidence: str
    """JSON."""


class Gpu(msgspec.Struct, frozen=True, rename=_AS_COLLECTORS_SAY):
    uuid: str
    gpu_id: str
    device: str
    model_name: str
    hostname: str
    last_seen: datetime


class Host(msgspec.Struct, frozen=True):
    hostname: str
    gpus: int
    last_seen: datetime


class MetricCount(msgspec.Struct, frozen=True, rename={"metric": "name"}):
    metric: str
    points: int
    unit: str = ""
    kind: str = "gauge"


class LatestValue(msgspec.Struct, frozen=True):
    uuid: str
    hostname: str
    metric: str
    value: float
    time: datetime


def maker(kind: type[RowT]) -> Callable[[Sequence[Any]], RowT]:
    """A function that makes a row from values in the order of the fields; times are microseconds since the epoch."""
    makers = [_MAKERS.get(field.type, field.type) for field in msgspec.structs.fields(kind)]
    return lambda values: kind(*(make(value) for make, value in zip(makers, values, strict=True)))


_MAKERS: dict[Any, Callable[[Any], Any]] = {datetime: moment, str: lambda text: text or ""}
_SPARK_TYPES = {datetime: "timestamp", float: "double", int: "bigint"}


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    row: type[msgspec.Struct]
    identity: tuple[str, ...]
    """Rows that agree in these columns are the same row; the last one by `precedence` counts."""
    precedence: tuple[str, ...]
    time: str
    """The column with the time of a row."""
    origin: tuple[tuple[str, str], ...] = ()
    """Further columns beside those of the row, with their types."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The names and Spark types of all columns."""
        fields = msgspec.structs.fields(self.row)
        return (*((field.name, _SPARK_TYPES.get(field.type, "string")) for field in fields), *self.origin)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)


POINTS = Table(
    "points",
    Point,
    identity=("uuid", "metric", "time"),
    precedence=("source_partition", "source_offset"),
    time="time",
    origin=(("source_partition", "int"), ("source_offset", "bigint")),
)
ROLLUPS = Table(
    "rollups",
    Rollup,
    identity=("resolution", "level", "key", "metric", "window_start"),
    precedence=("version",),
    time="window_start",
)
EVENTS = Table("events", Event, identity=("event_id",), precedence=("version",), time="start")
