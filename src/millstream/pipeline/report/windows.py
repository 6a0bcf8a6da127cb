"""The rollups of a time range as columns of numbers: minutes where they are few enough, else hours."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from millstream.pipeline.report.model import Floats
from millstream.pipeline.stores.base import StoreReader
from millstream.pipeline.stores.query import RollupQuery, all_rows
from millstream.pipeline.stores.rows import Level, Resolution, Rollup

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
WIDTHS = {Resolution.MINUTE: MINUTE, Resolution.HOUR: HOUR}

PAGE_ROWS = 100_000
MOST_ROWS = 500_000
"""Of one metric; each costs a few microseconds and there are a handful of metrics."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Windows that start in [start, end) are read at this resolution."""

    resolution: Resolution
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Rollups of one metric, one for each GPU and window, in the order of time."""

    gpu: npt.NDArray[np.int64]
    """The GPU's place in the order in which GPUs were first seen."""
    start_s: Floats
    width_s: Floats
    low: Floats
    high: Floats
    mean: Floats
    count: Floats

    def of(self, gpu: int) -> "Windows":
        return self.where(self.gpu == gpu)

    def where(self, chosen: npt.NDArray[np.bool_]) -> "Windows":
        return Windows(
            self.gpu[chosen],
            self.start_s[chosen],
            self.width_s[chosen],
            self.low[chosen],
            self.high[chosen],
            self.mean[chosen],
            self.count[chosen],
        )


def plan(
    store: StoreReader, start: datetime, end: datetime, gpus: int, most_rows: int = MOST_ROWS
) -> list[Stretch]:
    """How to read [start, end), which are whole minutes.

    Hours are taken where the store has them whole; the first and the last of a range, and those that are not final yet,
    come as minutes.
    """
    if gpus * ((end - start) // MINUTE) <= most_rows:
        return [Stretch(Resolution.MINUTE, start, end)]
    stretches: list[Stretch] = []
    at = start
    for first, last in _runs(_whole_hours(store, start, end)):
        if at < first:
            stretches.append(Stretch(Resolution.MINUTE, at, first))
        stretches.append(Stretch(Resolution.HOUR, first, last))
        at = last
    if at < end:
        stretches.append(Stretch(Resolution.MINUTE, at, end))
    return stretches


def _whole_hours(store: StoreReader, start: datetime, end: datetime) -> list[datetime]:
    query = RollupQuery(Resolution.HOUR, level=Level.FLEET, start=start, end=end - HOUR, limit=PAGE_ROWS)
    return sorted({row.window_start for row in all_rows(store.rollups, query)})


def _runs(hours: list[datetime]) -> Iterator[tuple[datetime, datetime]]:
    first = last = None
    for hour in hours:
        if first is None or last is None or hour > last:
            if first is not None and last is not None:
                yield first, last
            first = hour
        last = hour + HOUR
    if first is not None and last is not None:
        yield first, last


def read(
    store: StoreReader, stretches: list[Stretch], *, level: Level, metric: str | None
) -> Iterator[Rollup]:
    for stretch in stretches:
        query = RollupQuery(
            stretch.resolution,
            level=level,
            metric=metric,
            start=stretch.start,
            end=stretch.end - timedelta(microseconds=1),
            limit=PAGE_ROWS,
        )
        yield from all_rows(store.rollups, query)


def columns(rows: Iterator[Rollup], place_of: Callable[[Rollup], int]) -> Windows:
    found = [
        (
            place_of(row),
            row.window_start.timestamp(),
            WIDTHS[row.resolution].total_seconds(),
            row.min,
            row.max,
            row.mean,
            row.count,
        )
        for row in rows
    ]
    table = np.array(found, dtype=np.float64).reshape(len(found), 7)
    gpu, start_s, width_s, low, high, mean, count = table.T
    return Windows(gpu.astype(np.int64), start_s, width_s, low, high, mean, count)
