"""What a report tells, before it is drawn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream.pipeline.stores.rows import Event, Severity

Floats = npt.NDArray[np.float64]
Progress = Callable[[str], None]
"""Told what is being done now; an empty text at the end."""


class NothingToReport(Exception):
    """The store holds nothing for the time range; the message says what it does hold."""


class EnergySource(Enum):
    COUNTER = "counter"
    POWER = "power"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU as people know it."""

    uuid: str
    hostname: str
    gpu_id: str
    model_name: str

    @property
    def name(self) -> str:
        number = f"GPU {self.gpu_id}" if self.gpu_id else self.uuid
        return f"{self.hostname or 'unknown host'} / {number}"


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Equal stretches of time, for the plots: seconds since 1970."""

    start_s: float
    width_s: float
    count: int

    @property
    def edges_s(self) -> Floats:
        return self.start_s + self.width_s * np.arange(self.count + 1, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Gauge:
    """A metric of all GPUs, in the order of `FleetFigures.machines`; NaN where nothing was measured."""

    by_bin: Floats
    """Means, a row for each GPU and a column for each bin."""
    highest_by_bin: Floats
    mean: Floats
    highest: Floats

    @property
    def is_empty(self) -> bool:
        return bool(np.isnan(self.mean).all())


@dataclass(frozen=True, slots=True, eq=False)
class Energy:
    """What the GPUs used, in kWh."""

    by_bin: Floats
    sources: tuple[EnergySource, ...]
    resets: int

    @property
    def by_gpu(self) -> Floats:
        total: Floats = self.by_bin.sum(axis=1)
        return total

    @property
    def total(self) -> float:
        return float(self.by_bin.sum())

    def measured_by(self, source: EnergySource) -> int:
        return self.sources.count(source)


@dataclass(frozen=True, slots=True, eq=False)
class FleetFigures:
    """All that is known about a time range. Machines are in the order of their hosts and numbers."""

    start: datetime
    end: datetime
    bins: Bins
    machines: tuple[Machine, ...]
    unheard: tuple[Machine, ...]
    """GPUs that the store knows and that sent nothing in this time."""
    points: int
    utilisation: Gauge
    temperature: Gauge
    power: Gauge
    memory: Gauge
    idle_share: Floats
    """For each GPU the share of its minutes (or hours) below IDLE_BELOW."""
    mean_utilisation: float
    """Over all points."""
    energy: Energy
    events: tuple[Event, ...]
    """The latest first."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(machine.hostname for machine in self.machines))

    def count(self, severity: Severity) -> int:
        return sum(event.severity is severity for event in self.events)


IDLE_BELOW = 5.0
"""Percent of utilisation; a GPU that does less does no work worth the name."""


@dataclass(frozen=True, slots=True)
class ReportSummary:
    path: Path
    start: datetime
    end: datetime
    hosts: int
    gpus: int
    points: int
    mean_utilisation: float | None
    """Percent; None when no GPU reported it."""
    energy_kwh: float
    events: Mapping[Severity, int]
