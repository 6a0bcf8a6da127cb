"""What a reader of a store gets: one frozen value per row, times in UTC."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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
    """Later data showed that it never happened; readers do not see it."""


@dataclass(frozen=True, slots=True)
class Point:
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


@dataclass(frozen=True, slots=True)
class Rollup:
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


@dataclass(frozen=True, slots=True)
class Event:
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


@dataclass(frozen=True, slots=True)
class Gpu:
    uuid: str
    gpu_id: str
    device: str
    model_name: str
    hostname: str
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class Host:
    hostname: str
    gpus: int
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class MetricCount:
    metric: str
    points: int


@dataclass(frozen=True, slots=True)
class LatestValue:
    uuid: str
    hostname: str
    metric: str
    value: float
    time: datetime
