"""The questions that the store answers, in InfluxQL.

The server keeps points with different tags apart, even of the same GPU, metric and time; a reader gets one of them.
"""

from datetime import datetime
from itertools import chain, islice
from typing import Any

from millstream.pipeline.moments import micros, moment
from millstream.pipeline.stores.influx.influxql import InfluxQl, Series, TimeRange, equals, identifier, where
from millstream.pipeline.stores.influx.lines import EVENTS_MEASUREMENT, rollups_measurement
from millstream.pipeline.stores.query import (
    EventQuery,
    GpuQuery,
    LatestQuery,
    Page,
    RollupQuery,
    TelemetryQuery,
)
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

_OURS = {EVENTS_MEASUREMENT, *map(rollups_measurement, Resolution)}
_GPU_TAGS = '"uuid", "gpu_id", "device", "modelName", "Hostname"'
_ROLLUP_COLUMNS = '"level", "key", "hostname", "metric", "min", "max", "mean", "p95", "count"'
_EVENT_COLUMNS = '"event_id", "kind", "severity", "uuid", "hostname", "end", "status", "message", "evidence"'
_LEAST_CHUNK = 1_000


class InfluxQueries:
    """Implements `StoreReader`."""

    def __init__(self, server: InfluxQl) -> None:
        self._server = server

    def gpus(self, query: GpuQuery) -> Page[Gpu]:
        after = query.after
        return query.page(
            gpu
            for gpu in self._all_gpus([])
            if query.hostname in {None, gpu.hostname} and (after is None or gpu.uuid > after)
        )

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

    def latest(self, query: LatestQuery) -> tuple[LatestValue, ...]:
        measurements = self._measurements() if query.metric is None else [query.metric]
        newest: dict[tuple[str, str], LatestValue] = {}
        for each in self._points('last("value")', measurements, [], ' GROUP BY "uuid", "Hostname"'):
            time_us, value = each.rows[0]
            uuid, host = each.tags.get("uuid", ""), each.tags.get("Hostname", "")
            seen = LatestValue(uuid, host, each.name, float(value), moment(time_us))
            known = newest.get((uuid, each.name))
            if known is None or known.time < seen.time:
                newest[uuid, each.name] = seen
        in_order = (newest[key] for key in sorted(newest))
        chosen = (each for each in in_order if query.hostname in {None, each.hostname})
        return tuple(islice(chosen, query.limit))

    def telemetry(self, query: TelemetryQuery) -> Page[Point]:
        after, times = query.after, TimeRange(query.first_us, micros(query.end))
        if times.is_empty:
            return Page((), None)
        measurements = self._measurements() if query.metric is None else [query.metric]
        # Every series on its own is limited; the first may be what the last page ended with.
        tail = f" GROUP BY * ORDER BY time ASC LIMIT {query.limit + 2}"
        found: dict[tuple[int, str], Point] = {}
        conditions = [*equals("uuid", query.uuid), *times.conditions()]
        for series in self._points('"value"', measurements, conditions, tail):
            for time_us, value in series.rows:
                if after is None or (time_us, series.name) > after:
                    found.setdefault((time_us, series.name), _point(series, time_us, value))
        return query.page(found[place] for place in sorted(found))

    def rollups(self, query: RollupQuery) -> Page[Rollup]:
        after = query.after
        conditions = [
            *equals("level", query.level),
            *equals("key", query.key),
            *equals("metric", query.metric),
        ]
        parts = self._server.in_order_of_time(
            _ROLLUP_COLUMNS, rollups_measurement(query.resolution), [*conditions, '"count" > 0'],
            TimeRange(query.first_us, query.last_us), max(query.limit, _LEAST_CHUNK), newest_first=False,
        )  # fmt: skip
        rows = chain.from_iterable(
            sorted((_rollup(query.resolution, row) for row in part), key=query.place) for part in parts
        )
        return query.page(row for row in rows if after is None or query.place(row) > after)

    def events(self, query: EventQuery) -> Page[Event]:
        after = query.after
        conditions = [condition for field in query.fields for condition in equals(*field)]
        conditions.append(f"\"status\" <> '{EventStatus.RETRACTED.value}'")
        if query.least_end_us is not None:
            conditions.append(f'"end" >= {query.least_end_us}')
        parts = self._server.in_order_of_time(
            _EVENT_COLUMNS, EVENTS_MEASUREMENT, conditions, TimeRange(None, query.last_us),
            max(query.limit, _LEAST_CHUNK), newest_first=True,
        )  # fmt: skip
        rows = chain.from_iterable(sorted(map(_event, part), key=_newest_first) for part in parts)
        return query.page(row for row in rows if after is None or _newest_first(row) > (-after[0], after[1]))

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


def _event(row: list[Any]) -> Event:
    time_us, event_id, kind, severity, uuid, hostname, end, status, message, evidence = row
    return Event(
        event_id, kind, Severity(severity), uuid or "", hostname or "", moment(time_us), moment(int(end)),
        EventStatus(status), message, evidence,
    )  # fmt: skip


def _newest_first(event: Event) -> tuple[int, str]:
    return -micros(event.start), event.event_id
