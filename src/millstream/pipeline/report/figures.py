"""What a report tells, gathered from the answers of a store: rollups of GPUs, GPUs, and events."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from millstream.pipeline import metrics
from millstream.pipeline.metrics import Metric
from millstream.pipeline.stores.base import StoreReader
from millstream.pipeline.stores.query import EventQuery, GpuQuery, RollupQuery, all_rows
from millstream.pipeline.stores.rows import Event, Gpu, Level, Resolution, Rollup, Severity

IDLE_BELOW = 5.0
"""Percent of utilisation; a GPU that does less does no work worth the name."""

Progress = Callable[[str], None]
"""Told what is being done now; an empty text at the end."""

_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
_WIDTHS = {Resolution.MINUTE: _MINUTE, Resolution.HOUR: _HOUR}
_PAGE_ROWS = 100_000
_MOST_ROWS = 500_000
"""Of one metric: with more GPUs and minutes than this, hours are read."""
_MJ_PER_KWH = 3.6e9
_WATT_SECONDS_PER_KWH = 3.6e6


class NothingToReport(Exception):
    """The store holds nothing for the time range; the message says what it does hold."""


@dataclass(slots=True)
class Gauge:
    """A metric of one GPU, or of all of them in one window: adds up rollups."""

    total: float = 0.0
    count: int = 0
    highest: float = -math.inf

    def add(self, row: Rollup) -> None:
        self.total += row.mean * row.count
        self.count += row.count
        self.highest = max(self.highest, row.max)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan


@dataclass(slots=True)
class GpuFigures:
    gpu: Gpu
    utilisation: Gauge = field(default_factory=Gauge)
    temperature: Gauge = field(default_factory=Gauge)
    power: Gauge = field(default_factory=Gauge)
    memory: Gauge = field(default_factory=Gauge)
    windows: int = 0
    idle_windows: int = 0
    counted_kwh: float | None = None
    """By the GPU's own counter, where it has one."""
    integrated_kwh: float = 0.0
    """By its power over time."""

    @property
    def energy_kwh(self) -> float:
        return self.integrated_kwh if self.counted_kwh is None else self.counted_kwh

    @property
    def name(self) -> str:
        number = f"GPU {self.gpu.gpu_id}" if self.gpu.gpu_id else self.gpu.uuid
        return f"{self.gpu.hostname or 'unknown host'} / {number}"


@dataclass(slots=True)
class Moment:
    """The fleet in one window."""

    utilisation: Gauge = field(default_factory=Gauge)
    temperature: Gauge = field(default_factory=Gauge)
    watts: float = 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    start: datetime
    end: datetime
    gpus: tuple[GpuFigures, ...]
    """By host and number."""
    unheard: tuple[Gpu, ...]
    """GPUs that the store knows and that sent nothing in this time."""
    moments: dict[datetime, Moment]
    points: int
    events: tuple[Event, ...]
    """The latest first."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.gpu.hostname for each in self.gpus))

    @property
    def mean_utilisation(self) -> float | None:
        count = sum(each.utilisation.count for each in self.gpus)
        return sum(each.utilisation.total for each in self.gpus) / count if count else None

    @property
    def energy_kwh(self) -> float:
        return sum(each.energy_kwh for each in self.gpus)

    def count(self, severity: Severity) -> int:
        return sum(event.severity is severity for event in self.events)


def read_figures(
    store: StoreReader, start: datetime, end: datetime, progress: Progress, most_rows: int = _MOST_ROWS
) -> Figures:
    """Of the minutes that [start, end] touches; NothingToReport when they hold nothing."""
    first, last = _whole_minutes(start, end)
    progress("looking for GPUs")
    known = {gpu.uuid: gpu for gpu in all_rows(store.gpus, GpuQuery(limit=_PAGE_ROWS))}
    is_large = max(1, len(known)) * ((last - first) // _MINUTE) > most_rows
    return _Reading(
        store, first, last, Resolution.HOUR if is_large else Resolution.MINUTE, known, progress
    ).figures()


def last_moment(store: StoreReader) -> datetime | None:
    """The time of the newest point."""
    return max((host.last_seen for host in store.hosts()), default=None)


@dataclass(slots=True)
class _Reading:
    store: StoreReader
    start: datetime
    end: datetime
    resolution: Resolution
    known: dict[str, Gpu]
    progress: Progress
    gpus: dict[str, GpuFigures] = field(default_factory=dict)
    moments: dict[datetime, Moment] = field(default_factory=dict)

    def figures(self) -> Figures:
        points = sum(row.count for row in self._rows(Level.FLEET, None))
        if not points:
            raise NothingToReport(self._why_nothing())
        width_s = _WIDTHS[self.resolution].total_seconds()
        for row in self._rows(Level.GPU, metrics.GPU_UTIL):
            gpu = self._gpu(row)
            gpu.utilisation.add(row)
            gpu.windows += 1
            gpu.idle_windows += row.mean < IDLE_BELOW
            self._moment(row).utilisation.add(row)
        for row in self._rows(Level.GPU, metrics.GPU_TEMP):
            self._gpu(row).temperature.add(row)
            self._moment(row).temperature.add(row)
        for row in self._rows(Level.GPU, metrics.POWER_USAGE):
            gpu = self._gpu(row)
            gpu.power.add(row)
            gpu.integrated_kwh += row.mean * width_s / _WATT_SECONDS_PER_KWH
            self._moment(row).watts += row.mean
        for row in self._rows(Level.GPU, metrics.FB_USED):
            self._gpu(row).memory.add(row)
        self._count_energy()
        self.progress("reading events")
        query = EventQuery(start=self.start, end=self.end, limit=_PAGE_ROWS)
        return Figures(
            start=self.start,
            end=self.end,
            gpus=tuple(sorted(self.gpus.values(), key=lambda each: _by_host(each.gpu))),
            unheard=tuple(gpu for uuid, gpu in self.known.items() if uuid not in self.gpus),
            moments=dict(sorted(self.moments.items())),
            points=points,
            events=tuple(all_rows(self.store.events, query)),
        )

    def _count_energy(self) -> None:
        """What each counter grew by. One that is lower than before was reset, and has grown by what it shows: a reset
        within a window is not seen, so the sum is the least that was used."""
        last: dict[str, float] = {}
        for row in self._rows(Level.GPU, metrics.TOTAL_ENERGY_CONSUMPTION):
            gpu = self._gpu(row)
            before = last.get(row.key, row.min)
            grown = row.max - before if row.min >= before else row.max
            if row.key in last or row.max > row.min:
                gpu.counted_kwh = (gpu.counted_kwh or 0.0) + grown / _MJ_PER_KWH
            last[row.key] = row.max

    def _rows(self, level: Level, metric: Metric | None) -> Iterator[Rollup]:
        name = None if metric is None else metric.name
        self.progress(f"reading {name or 'counts'}")
        query = RollupQuery(
            self.resolution, level=level, metric=name, start=self.start, end=self.end - timedelta(microseconds=1),
            limit=_PAGE_ROWS,
        )  # fmt: skip
        return all_rows(self.store.rollups, query)

    def _gpu(self, row: Rollup) -> GpuFigures:
        found = self.gpus.get(row.key)
        if found is None:
            gpu = self.known.get(row.key) or Gpu(row.key, "", "", "", row.hostname, row.window_start)
            found = self.gpus[row.key] = GpuFigures(gpu)
        return found

    def _moment(self, row: Rollup) -> Moment:
        return self.moments.setdefault(row.window_start, Moment())

    def _why_nothing(self) -> str:
        asked = f"between {self.start:%Y-%m-%d %H:%M} and {self.end:%Y-%m-%d %H:%M} UTC"
        newest = last_moment(self.store)
        if newest is None:
            return f"nothing to report {asked}: the store is empty; run the pipeline first"
        if self.start <= newest <= self.end:
            return (
                f"nothing to report {asked}: the store has points but no rollups of that time yet; "
                "run millstream pipeline backfill for it"
            )
        return f"nothing to report {asked}: the newest point is of {newest:%Y-%m-%d %H:%M} UTC; choose another time"


def _whole_minutes(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    if end <= start:
        raise NothingToReport(
            f"the report would end at {end.isoformat()}, before it begins at {start.isoformat()}; give a later end"
        )
    first, last = start.astimezone(UTC), end.astimezone(UTC)
    whole = last.replace(second=0, microsecond=0)
    return first.replace(second=0, microsecond=0), whole if whole == last else whole + _MINUTE


def _by_host(gpu: Gpu) -> tuple[str, int, str, str]:
    number = int(gpu.gpu_id) if gpu.gpu_id.isdecimal() else 1 << 30
    return gpu.hostname, number, gpu.gpu_id, gpu.uuid
