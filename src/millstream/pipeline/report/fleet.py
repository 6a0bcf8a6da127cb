"""Reads all that a report tells from a store."""

from datetime import UTC, datetime, timedelta

import numpy as np

from millstream.pipeline import metrics
from millstream.pipeline.metrics import Metric
from millstream.pipeline.report import energy
from millstream.pipeline.report.model import (
    IDLE_BELOW,
    Bins,
    Energy,
    EnergySource,
    FleetFigures,
    Floats,
    Gauge,
    Machine,
    NothingToReport,
    Progress,
)
from millstream.pipeline.report.windows import (
    HOUR,
    MINUTE,
    MOST_ROWS,
    PAGE_ROWS,
    Stretch,
    Windows,
    columns,
    plan,
    read,
)
from millstream.pipeline.stores.base import StoreReader
from millstream.pipeline.stores.query import EventQuery, GpuQuery, TelemetryQuery, all_rows
from millstream.pipeline.stores.rows import Event, Level, Resolution, Rollup

_BIN_WIDTHS = tuple(
    timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
)
_MOST_BINS = 240


def read_fleet(
    store: StoreReader, start: datetime, end: datetime, progress: Progress, most_rows: int = MOST_ROWS
) -> FleetFigures:
    """The figures of the minutes that [start, end] touches; NothingToReport when they hold nothing."""
    return _Reading(store, start, end, progress, most_rows).figures()


class _Reading:
    def __init__(
        self, store: StoreReader, start: datetime, end: datetime, progress: Progress, most_rows: int
    ) -> None:
        self._store = store
        self._start, self._end = _whole_minutes(start, end)
        self._progress = progress
        progress("looking for GPUs")
        gpus = all_rows(store.gpus, GpuQuery(limit=PAGE_ROWS))
        self._known = {gpu.uuid: Machine(gpu.uuid, gpu.hostname, gpu.gpu_id, gpu.model_name) for gpu in gpus}
        self._stretches = plan(store, self._start, self._end, max(1, len(self._known)), most_rows)
        self._bins = _bins(self._stretches, self._start, self._end)
        self._places: dict[str, int] = {}
        """GPUs as they are met."""
        self._hosts: dict[str, str] = {}

    def figures(self) -> FleetFigures:
        points = sum(row.count for row in read(self._store, self._stretches, level=Level.FLEET, metric=None))
        if points == 0:
            raise NothingToReport(self._why_nothing())
        utilisation = self._windows(metrics.GPU_UTIL)
        temperature = self._windows(metrics.GPU_TEMP)
        power = self._windows(metrics.POWER_USAGE)
        memory = self._windows(metrics.FB_USED)
        counter = self._windows(metrics.TOTAL_ENERGY_CONSUMPTION)
        self._progress("reading events")
        events = self._events()
        machines, order = self._machines()
        weights = utilisation.count.sum()
        return FleetFigures(
            start=self._start,
            end=self._end,
            bins=self._bins,
            machines=machines,
            unheard=tuple(known for uuid, known in self._known.items() if uuid not in self._places),
            points=points,
            utilisation=self._gauge(utilisation, order),
            temperature=self._gauge(temperature, order),
            power=self._gauge(power, order),
            memory=self._gauge(memory, order),
            idle_share=self._idle_share(utilisation, order),
            mean_utilisation=float((utilisation.mean * utilisation.count).sum() / weights)
            if weights
            else np.nan,
            energy=self._energy(counter, power, machines, order),
            events=events,
        )

    def _windows(self, metric: Metric) -> Windows:
        self._progress(f"reading {metric.name}")
        rows = read(self._store, self._stretches, level=Level.GPU, metric=metric.name)
        return columns(rows, self._place_of)

    def _place_of(self, row: Rollup) -> int:
        self._hosts[row.key] = row.hostname
        return self._places.setdefault(row.key, len(self._places))

    def _machines(self) -> tuple[tuple[Machine, ...], list[int]]:
        """By host and number, and the place of each."""
        met = [self._known.get(uuid) or Machine(uuid, self._hosts[uuid], "", "") for uuid in self._places]
        order = sorted(range(len(met)), key=lambda place: _host_order(met[place]))
        return tuple(met[place] for place in order), order

    def _gauge(self, windows: Windows, order: list[int]) -> Gauge:
        shape = (len(order), self._bins.count)
        weights, sums = np.zeros(shape), np.zeros(shape)
        highest = np.full(shape, -np.inf)
        bins = ((windows.start_s - self._bins.start_s) // self._bins.width_s).astype(np.int64)
        cells = (windows.gpu, bins)
        np.add.at(weights, cells, windows.count)
        np.add.at(sums, cells, windows.mean * windows.count)
        np.maximum.at(highest, cells, windows.high)
        weights, sums, highest = weights[order], sums[order], highest[order]
        highest[weights == 0] = np.nan
        most = np.where(np.isnan(highest), -np.inf, highest).max(axis=1, initial=-np.inf)
        whole = weights.sum(axis=1)
        return Gauge(
            by_bin=_divide(sums, weights),
            highest_by_bin=highest,
            mean=_divide(sums.sum(axis=1), whole),
            highest=np.where(whole > 0, most, np.nan),
        )

    def _idle_share(self, windows: Windows, order: list[int]) -> Floats:
        idle, whole = np.zeros(len(order)), np.zeros(len(order))
        np.add.at(whole, windows.gpu, windows.width_s)
        np.add.at(idle, windows.gpu, np.where(windows.mean < IDLE_BELOW, windows.width_s, 0.0))
        return _divide(idle[order], whole[order])

    def _energy(
        self, counter: Windows, power: Windows, machines: tuple[Machine, ...], order: list[int]
    ) -> Energy:
        self._progress("adding up energy")
        by_bin = np.zeros((len(order), self._bins.count))
        sources, resets = [], 0
        for row, (machine, place) in enumerate(zip(machines, order, strict=True)):
            curve = energy.from_counter(
                counter.of(place),
                lambda first_s, last_s, uuid=machine.uuid: self._counter_values(uuid, first_s, last_s),  # type: ignore[misc]
            )
            source = EnergySource.COUNTER
            if curve is None:
                curve, source = energy.from_power(power.of(place)), EnergySource.POWER
            if curve is None:
                sources.append(EnergySource.NONE)
                continue
            sources.append(source)
            resets += curve.resets
            by_bin[row] = curve.by_bin(self._bins.edges_s)
        return Energy(by_bin, tuple(sources), resets)

    def _counter_values(self, uuid: str, start_s: float, end_s: float) -> list[float]:
        first = datetime.fromtimestamp(start_s, UTC)
        last = datetime.fromtimestamp(end_s, UTC) - timedelta(microseconds=1)
        query = TelemetryQuery(
            uuid, first, last, metric=metrics.TOTAL_ENERGY_CONSUMPTION.name, limit=PAGE_ROWS
        )
        return [point.value for point in all_rows(self._store.telemetry, query)]

    def _events(self) -> tuple[Event, ...]:
        query = EventQuery(start=self._start, end=self._end, limit=PAGE_ROWS)
        return tuple(all_rows(self._store.events, query))

    def _why_nothing(self) -> str:
        asked = f"between {self._start:%Y-%m-%d %H:%M} and {self._end:%Y-%m-%d %H:%M} UTC"
        newest = last_moment(self._store)
        if newest is None:
            return f"nothing to report {asked}: the store is empty; run the pipeline first"
        if self._start <= newest <= self._end:
            return (
                f"nothing to report {asked}: the store has points but no rollups of that time yet; "
                "run millstream pipeline backfill for it"
            )
        return f"nothing to report {asked}: the newest point is of {newest:%Y-%m-%d %H:%M} UTC; choose another time"


def last_moment(store: StoreReader) -> datetime | None:
    """The time of the newest point."""
    return max((host.last_seen for host in store.hosts()), default=None)


def _whole_minutes(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    if end <= start:
        raise NothingToReport(
            f"the report would end at {end.isoformat()}, before it begins at {start.isoformat()}; "
            "give a later end"
        )
    first, last = start.astimezone(UTC), end.astimezone(UTC)
    whole = last.replace(second=0, microsecond=0)
    return first.replace(second=0, microsecond=0), whole if whole == last else whole + MINUTE


def _bins(stretches: list[Stretch], start: datetime, end: datetime) -> Bins:
    least = HOUR if any(each.resolution is Resolution.HOUR for each in stretches) else MINUTE
    width = next(
        (width for width in _BIN_WIDTHS if width >= least and (end - start) / width <= _MOST_BINS),
        timedelta(days=-(-(end - start) // (_MOST_BINS * _BIN_WIDTHS[-1]))),
    )
    width_s = width.total_seconds()
    first = start.timestamp() // width_s
    last = -(-end.timestamp() // width_s)
    return Bins(first * width_s, width_s, int(last - first))


def _host_order(machine: Machine) -> tuple[str, int, str, str]:
    number = int(machine.gpu_id) if machine.gpu_id.isdecimal() else 1 << 30
    return machine.hostname, number, machine.gpu_id, machine.uuid


def _divide(sums: Floats, weights: Floats) -> Floats:
    out = np.full(sums.shape, np.nan)
    np.divide(sums, weights, out=out, where=weights > 0)
    return out
