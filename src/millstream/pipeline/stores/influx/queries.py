"""The questions that the store answers, in InfluxQL.

The server keeps points with different tags apart, even of the same GPU, metric and time; a reader gets one of them.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from millstream.pipeline.stores.base import Cursor, Page
from millstream.pipeline.stores.influx.influxql import InfluxQl, Series, TimeRange, equals, identifier, where
from millstream.pipeline.stores.influx.lines import EVENTS_MEASUREMENT, rollups_measurement
from millstream.pipeline.stores.keys import check_cursor
from millstream.pipeline.stores.rows import (
    Event,
    EventStatus,
    Gpu,
    Host,
    LatestValue,
    Level,
    MetricCount,
    Point,
    Resolution,
    Rollup,
    Severity,
)
from millstream.pipeline.stores.times import micros, moment

T = TypeVar("T")

_OURS = {EVENTS_MEASUREMENT, *map(rollups_measurement, Resolution)}
_GPU_TAGS = '"uuid", "gpu_id", "device", "modelName", "Hostname"'
_ROLLUP_COLUMNS = '"level", "key", "hostname", "metric", "min", "max", "mean", "p95", "count"'
_EVENT_COLUMNS = '"event_id", "kind", "severity", "uuid", "hostname", "end", "status", "message", "evidence"'
_LEAST_CHUNK = 1_000


class InfluxQueries:
    """Implements `StoreReader`."""

    def __init__(self, server: InfluxQl) -> None:
        self._server = server

    def gpus(
        self, *, hostname: str | None = None, limit: int = 1000, cursor: Cursor | None = None
    ) -> Page[Gpu]:
        after = check_cursor(cursor, str)
        chosen = [
            gpu
            for gpu in self._all_gpus([])
            if (hostname is None or gpu.hostname == hostname) and (after is None or gpu.uuid > str(after[0]))
        ]
        found = tuple(chosen[:limit])
        return Page(found, (found[-1].uuid,) if len(chosen) > limit else None)

    def gpu(self, uuid: str) -> Gpu | None:
        return next(iter(self._all_gpus(equals("uuid", uuid))), None)

    def hosts(self) -> tuple[Host, ...]:
        seen: dict[str, list[datetime]] = {}
        for gpu in self._all_gpus([]):
            seen.setdefault(gpu.hostname, []).append(gpu.last_seen)
        return tuple(Host(name, len(times), max(times)) for name, times in sorted(seen.items()))

    def metrics(self) -> tuple[MetricCount, ...]:
        counted = self._points('count("value")', self._measurements(), [], "")
        return tuple(sorted((MetricCount(each.name, int(each.rows[0][1])) for each in counted), key=_metric))

    def count_points(self) -> int:
        return sum(each.points for each in self.metrics())

    def latest(
        self, *, metric: str | None = None, hostname: str | None = None, limit: int = 1000
    ) -> tuple[LatestValue, ...]:
        measurements = self._measurements() if metric is None else [metric]
        newest: dict[tuple[str, str], LatestValue] = {}
        for each in self._points('last("value")', measurements, [], ' GROUP BY "uuid", "Hostname"'):
            time_us, value = each.rows[0]
            uuid, host = each.tags.get("uuid", ""), each.tags.get("Hostname", "")
            seen = LatestValue(uuid, host, each.name, float(value), moment(time_us))
            known = newest.get((uuid, each.name))
            if known is None or known.time < seen.time:
                newest[uuid, each.name] = seen
        in_order = (newest[key] for key in sorted(newest))
        return tuple(islice((each for each in in_order if hostname in {None, each.hostname}), limit))

    def telemetry(
        self,
        uuid: str,
        start: datetime,
        end: datetime,
        *,
        metric: str | None = None,
        limit: int = 1000,
        cursor: Cursor | None = None,
    ) -> Page[Point]:
        after = check_cursor(cursor, int, str)
        times = TimeRange(max(micros(start), int(after[0])) if after else micros(start), micros(end))
        if times.is_empty:
            return Page((), None)
        measurements = self._measurements() if metric is None else [metric]
        # Every series on its own is limited; the first may be what the last page ended with.
        tail = f" GROUP BY * ORDER BY time ASC LIMIT {limit + 2}"
        found: dict[tuple[int, str], Point] = {}
        conditions = [*equals("uuid", uuid), *times.conditions()]
        for series in self._points('"value"', measurements, conditions, tail):
            for time_us, value in series.rows:
                if after is None or (time_us, series.name) > (int(after[0]), str(after[1])):
                    found.setdefault((time_us, series.name), _point(series, time_us, value))
        keys = sorted(found)
        page = tuple(found[key] for key in keys[:limit])
        return Page(page, keys[limit - 1] if len(keys) > limit else None)

    def rollups(
        self,
        resolution: Resolution,
        *,
        level: Level | None = None,
        key: str | None = None,
        metric: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 1000,
        cursor: Cursor | None = None,
    ) -> Page[Rollup]:
        after = check_cursor(cursor, int, str, str, str)
        first_us = micros(start) if start is not None else None
        if after is not None:
            first_us = max(first_us, int(after[0])) if first_us is not None else int(after[0])
        times = TimeRange(first_us, micros(end) if end is not None else None)
        conditions = [*equals("level", level), *equals("key", key), *equals("metric", metric), '"count" > 0']
        parts = self._server.in_order_of_time(
            _ROLLUP_COLUMNS, rollups_measurement(resolution), conditions, times, max(limit, _LEAST_CHUNK),
            newest_first=False,
        )  # fmt: skip
        return _page(
            (sorted((_rollup(resolution, row) for row in part), key=_rollup_key) for part in parts),
            lambda rollup: after is None or _rollup_key(rollup) > tuple(after),
            limit, _rollup_key,
        )  # fmt: skip

    def events(
        self,
        *,
        kind: str | None = None,
        severity: Severity | None = None,
        uuid: str | None = None,
        hostname: str | None = None,
        status: EventStatus | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 1000,
        cursor: Cursor | None = None,
    ) -> Page[Event]:
        after = check_cursor(cursor, int, str)
        last_us = micros(end) if end is not None else None
        if after is not None:
            last_us = min(last_us, int(after[0])) if last_us is not None else int(after[0])
        conditions = [*equals("kind", kind), *equals("uuid", uuid), *equals("hostname", hostname)]
        conditions += [*equals("severity", severity), *equals("status", status)]
        conditions.append(f"\"status\" <> '{EventStatus.RETRACTED.value}'")
        if start is not None:
            conditions.append(f'"end" >= {micros(start)}')
        parts = self._server.in_order_of_time(
            _EVENT_COLUMNS, EVENTS_MEASUREMENT, conditions, TimeRange(None, last_us), max(limit, _LEAST_CHUNK),
            newest_first=True,
        )  # fmt: skip
        return _page(
            (sorted(map(_event, part), key=_newest_first) for part in parts),
            lambda event: after is None or _newest_first(event) > (-int(after[0]), str(after[1])),
            limit,
            lambda event: (micros(event.start), event.event_id),
        )

    def _measurements(self) -> list[str]:
        names = [row[0] for series in self._server.select("SHOW MEASUREMENTS") for row in series.rows]
        return [name for name in names if name not in _OURS]

    def _points(
        self, columns: str, measurements: list[str], conditions: list[str], tail: str
    ) -> list[Series]:
        if not measurements:
            return []
        sources = ", ".join(map(identifier, measurements))
        return self._server.select(f"SELECT {columns} FROM {sources}{where(conditions)}{tail}")  # noqa: S608

    def _all_gpus(self, conditions: list[str]) -> list[Gpu]:
        newest: dict[str, Gpu] = {}
        for each in self._points('last("value")', self._measurements(), conditions, f" GROUP BY {_GPU_TAGS}"):
            tags, seen = each.tags, moment(each.rows[0][0])
            gpu = Gpu(tags["uuid"], tags["gpu_id"], tags["device"], tags["modelName"], tags["Hostname"], seen)
            known = newest.get(gpu.uuid)
            if known is None or known.last_seen < gpu.last_seen:
                newest[gpu.uuid] = gpu
        return [newest[uuid] for uuid in sorted(newest)]


def _page(
    parts: Iterator[list[T]], wanted: Callable[[T], bool], limit: int, key: Callable[[T], Cursor]
) -> Page[T]:
    found = tuple(islice((row for part in parts for row in part if wanted(row)), limit + 1))
    page = found[:limit]
    return Page(page, key(page[-1]) if len(found) > limit else None)


def _metric(count: MetricCount) -> str:
    return count.metric


def _point(series: Series, time_us: int, value: Any) -> Point:
    tag = series.tags.get
    return Point(
        moment(time_us), tag("uuid", ""), series.name, float(value), tag("gpu_id", ""), tag("device", ""),
        tag("modelName", ""), tag("Hostname", ""), tag("container", ""), tag("pod", ""), tag("namespace", ""),
        tag("labels_raw", ""),
    )  # fmt: skip


def _rollup(resolution: Resolution, row: list[Any]) -> Rollup:
    time_us, level, key, hostname, metric, low, high, mean, p95, count = row
    return Rollup(
        resolution, moment(time_us), Level(level), key, hostname or "", metric, float(low), float(high), float(mean),
        float(p95), int(count),
    )  # fmt: skip


def _rollup_key(rollup: Rollup) -> tuple[int, str, str, str]:
    return micros(rollup.window_start), rollup.level.value, rollup.key, rollup.metric


def _event(row: list[Any]) -> Event:
    time_us, event_id, kind, severity, uuid, hostname, end, status, message, evidence = row
    return Event(
        event_id, kind, Severity(severity), uuid or "", hostname or "", moment(time_us), moment(int(end)),
        EventStatus(status), message, evidence,
    )  # fmt: skip


def _newest_first(event: Event) -> tuple[int, str]:
    return -micros(event.start), event.event_id
