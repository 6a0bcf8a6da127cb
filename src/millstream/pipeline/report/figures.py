"""The figures of a report, gathered from a store: rollups of GPUs, the GPUs, and events."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from millstream.pipeline.metrics import FB_USED, GPU_TEMP, GPU_UTIL, POWER_USAGE, TOTAL_ENERGY_CONSUMPTION
from millstream.pipeline.moments import HOUR, MINUTE
from millstream.pipeline.stores.base import EventQuery, GpuQuery, RollupQuery, StoreReader, all_rows
from millstream.pipeline.stores.rows import Event, Gpu, Level, Resolution, Rollup, Severity

IDLE_BELOW = 5.0
"""Percent of utilisation; a GPU that does less does no work worth the name."""

Progress = Callable[[str], None]
"""Called with the step that begins, and with an empty text at the end."""

_PAGE_ROWS = 100_000
_MOST_ROWS = 500_000
"""Rows read for one metric; beyond this, rollups of hours are read instead of minutes."""
_MJ_PER_KWH = 3.6e9
_WATT_SECONDS_PER_KWH = 3.6e6


class NothingToReport(Exception):
    """The store holds nothing for the time range; the message says what it does hold."""


@dataclass(slots=True)
class Gauge:
    """Sums up the rollups of a metric: of one GPU, or of all GPUs in one window."""

    total: float = 0.0
    count: int = 0
    highest: float = math.nan
    windows: int = 0
    low_windows: int = 0
    sum_of_means: float = 0.0

    def add(self, row: Rollup) -> None:
        self.total += row.mean * row.count
        self.count += row.count
        self.highest = row.max if math.isnan(self.highest) else max(self.highest, row.max)
        self.windows += 1
        self.low_windows += row.mean < IDLE_BELOW
        self.sum_of_means += row.mean

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan


Gauges = defaultdict[str, Gauge]
"""By metric."""


@dataclass(slots=True)
class GpuFigures:
    gpu: Gpu
    window_s: float
    gauges: Gauges = field(default_factory=lambda: defaultdict(Gauge))
    counted_kwh: float | None = None
    """Energy by the GPU's own counter, if it has one."""

    @property
    def energy_kwh(self) -> float:
        """Energy by the counter, else from power over time."""
        integrated = self.gauges[POWER_USAGE].sum_of_means * self.window_s / _WATT_SECONDS_PER_KWH
        return integrated if self.counted_kwh is None else self.counted_kwh

    @property
    def idle_share(self) -> float:
        used = self.gauges[GPU_UTIL]
        return used.low_windows / used.windows if used.windows else math.nan

    @property
    def name(self) -> str:
        number = f"GPU {self.gpu.gpu_id}" if self.gpu.gpu_id else self.gpu.uuid
        return f"{self.gpu.hostname or 'unknown host'} / {number}"


@dataclass(frozen=True, slots=True)
class Figures:
    start: datetime
    end: datetime
    gpus: list[GpuFigures]
    """Sorted by host and number."""
    unheard: list[Gpu]
    """GPUs that the store knows but that sent nothing in this time."""
    moments: dict[datetime, Gauges]
    """The fleet in each window."""
    points: int
    events: list[Event]
    """Sorted with the latest first."""

    @property
    def hosts(self) -> set[str]:
        return {each.gpu.hostname for each in self.gpus}

    @property
    def idle(self) -> list[GpuFigures]:
        return [each for each in self.gpus if each.gauges[GPU_UTIL].mean < IDLE_BELOW]

    @property
    def mean_utilisation(self) -> float:
        """Percent; NaN when no GPU reported it."""
        used = [each.gauges[GPU_UTIL] for each in self.gpus]
        count = sum(each.count for each in used)
        return sum(each.total for each in used) / count if count else math.nan

    @property
    def energy_kwh(self) -> float:
        return sum(each.energy_kwh for each in self.gpus)

    def count(self, severity: Severity) -> int:
        return sum(event.severity is severity for event in self.events)


def read_figures(
    store: StoreReader, start: datetime, end: datetime, progress: Progress, most_rows: int = _MOST_ROWS
) -> Figures:
    """The figures of the minutes that [start, end] touches; NothingToReport if they hold nothing."""
    if end <= start:
        raise NothingToReport(
            f"the report would end at {end.isoformat()}, before it begins at {start.isoformat()}; give a later end"
        )
    first = start.astimezone(UTC).replace(second=0, microsecond=0)
    last = (end.astimezone(UTC) + MINUTE - timedelta(microseconds=1)).replace(second=0, microsecond=0)
    progress("looking for GPUs")
    known = {gpu.uuid: gpu for gpu in all_rows(store.gpus, GpuQuery(limit=_PAGE_ROWS))}
    is_large = max(1, len(known)) * ((last - first) // MINUTE) > most_rows
    resolution, window = (Resolution.HOUR, HOUR) if is_large else (Resolution.MINUTE, MINUTE)

    def rollups(level: Level, metric: str | None) -> Iterator[Rollup]:
        progress(f"reading {metric or 'counts'}")
        just_before = last - timedelta(microseconds=1)
        query = RollupQuery(resolution, level, metric=metric, start=first, end=just_before, limit=_PAGE_ROWS)
        return all_rows(store.rollups, query)

    points = sum(row.count for row in rollups(Level.FLEET, None))
    if not points:
        raise NothingToReport(_why_nothing(store, first, last))
    gpus: dict[str, GpuFigures] = {}
    moments: defaultdict[datetime, Gauges] = defaultdict(lambda: defaultdict(Gauge))

    def figures_of(row: Rollup) -> GpuFigures:
        if row.key not in gpus:
            gpu = known.get(row.key) or Gpu(row.key, "", "", "", row.hostname, row.window_start)
            gpus[row.key] = GpuFigures(gpu, window.total_seconds())
        return gpus[row.key]

    for metric in (GPU_UTIL, GPU_TEMP, POWER_USAGE, FB_USED):
        for row in rollups(Level.GPU, metric):
            figures_of(row).gauges[metric].add(row)
            moments[row.window_start][metric].add(row)
    # The increase of each counter. A counter lower than before was reset, and its value is the increase since then.
    # A reset within a window goes unnoticed, so the sum is a lower bound.
    reached: dict[str, float] = {}
    for row in rollups(Level.GPU, TOTAL_ENERGY_CONSUMPTION):
        gpu, before = figures_of(row), reached.get(row.key, row.min)
        grown = row.max - before if row.min >= before else row.max
        if row.key in reached or row.max > row.min:
            gpu.counted_kwh = (gpu.counted_kwh or 0.0) + grown / _MJ_PER_KWH
        reached[row.key] = row.max
    progress("reading events")
    return Figures(
        first,
        last,
        sorted(gpus.values(), key=lambda each: _by_host(each.gpu)),
        [gpu for uuid, gpu in known.items() if uuid not in gpus],
        dict(sorted(moments.items())),
        points,
        list(all_rows(store.events, EventQuery(start=first, end=last, limit=_PAGE_ROWS))),
    )


def last_day(store: StoreReader) -> tuple[datetime, datetime]:
    """The 24 hours that end with the newest point's minute; NothingToReport if there is no point."""
    newest = _newest(store)
    if newest is None:
        raise NothingToReport("the store is empty; run the pipeline first")
    end = newest.replace(second=0, microsecond=0) + MINUTE
    return end - timedelta(hours=24), end


def _newest(store: StoreReader) -> datetime | None:
    return max((host.last_seen for host in store.hosts()), default=None)


def _why_nothing(store: StoreReader, start: datetime, end: datetime) -> str:
    nothing = f"nothing to report between {start:%Y-%m-%d %H:%M} and {end:%Y-%m-%d %H:%M} UTC"
    newest = _newest(store)
    if newest is None:
        return f"{nothing}: the store is empty; run the pipeline first"
    if start <= newest <= end:
        return (
            f"{nothing}: the store has points but no rollups of that time yet; "
            "run millstream pipeline backfill for it"
        )
    return f"{nothing}: the newest point is of {newest:%Y-%m-%d %H:%M} UTC; choose another time"


def _by_host(gpu: Gpu) -> tuple[str, int, str, str]:
    number = int(gpu.gpu_id) if gpu.gpu_id.isdecimal() else 1 << 30
    return gpu.hostname, number, gpu.gpu_id, gpu.uuid
