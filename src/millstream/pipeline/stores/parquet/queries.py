"""The questions that the store answers, as SQL over its files."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from millstream.pipeline.moments import micros, moment
from millstream.pipeline.stores.parquet.engine import Engine, with_fresh_files
from millstream.pipeline.stores.parquet.layout import (
    EVENTS_ROOM,
    POINTS_ROOM,
    ROLLUP_ROOMS,
    Room,
)
from millstream.pipeline.stores.parquet.live import LiveFiles, live_files
from millstream.pipeline.stores.parquet.reading import Selection, first_rows
from millstream.pipeline.stores.parquet.series import PointCounts, newest_per
from millstream.pipeline.stores.query import (
    EventQuery,
    GpuQuery,
    LatestQuery,
    Page,
    Query,
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

RowT = TypeVar("RowT")
Condition = tuple[str, tuple[object, ...]]

_POINT_COLUMNS = (
    "epoch_us(time), uuid, metric, value, gpu_id, device, model_name, hostname, container, pod, namespace, "
    "labels_raw"
)
_ROLLUP_COLUMNS = (
    "resolution, epoch_us(window_start), level, key, hostname, metric, min, max, mean, p95, count"
)
_EVENT_COLUMNS = (
    'event_id, kind, severity, uuid, hostname, epoch_us("start"), epoch_us("end"), status, message, evidence'
)
_ALL = 1 << 40
_GPU_COLUMNS = "uuid, gpu_id, device, model_name, hostname, epoch_us(time)"


class ParquetQueries:
    """Implements `StoreReader`."""

    def __init__(self, root: Path, engine: Engine) -> None:
        self._root = root
        self._engine = engine
        self._counts = PointCounts(root, engine)

    def gpus(self, query: GpuQuery) -> Page[Gpu]:
        after: list[Condition] = [("uuid > ?", (query.after,))] if query.after is not None else []
        # The host is compared afterwards: a GPU belongs where it was seen last.
        gpus = map(_gpu, self._newest("uuid", _GPU_COLUMNS, after))
        return query.page(gpu for gpu in gpus if query.hostname in {None, gpu.hostname})

    def gpu(self, uuid: str) -> Gpu | None:
        rows = self._newest("uuid", _GPU_COLUMNS, [("uuid = ?", (uuid,))])
        return _gpu(rows[0]) if rows else None

    def hosts(self) -> tuple[Host, ...]:
        seen: dict[str, tuple[int, int]] = {}
        for hostname, time_us in self._newest("uuid", "hostname, epoch_us(time)"):
            gpus, last = seen.get(hostname, (0, time_us))
            seen[hostname] = (gpus + 1, max(last, time_us))
        return tuple(Host(name, gpus, moment(last)) for name, (gpus, last) in sorted(seen.items()))

    def metrics(self) -> tuple[MetricCount, ...]:
        counts = with_fresh_files(self._root, lambda: self._counts.per_metric(self._all_points()))
        return tuple(MetricCount(metric, points) for metric, points in sorted(counts.items()))

    def latest(self, query: LatestQuery) -> tuple[LatestValue, ...]:
        conditions = _equal([("metric", query.metric)])
        rows = self._newest("uuid, metric", "uuid, hostname, metric, value, epoch_us(time)", conditions)
        chosen = (row for row in rows if query.hostname in {None, row[1]})
        return tuple(map(_latest, islice(chosen, query.limit)))

    def count_points(self) -> int:
        return sum(each.points for each in self.metrics())

    def telemetry(self, query: TelemetryQuery) -> Page[Point]:
        first_us, last_us = query.first_us, micros(query.end)
        conditions = _equal([("uuid", query.uuid), ("metric", query.metric)])
        conditions += _between("time", first_us, last_us)
        if query.after is not None:
            conditions.append(("(epoch_us(time), metric) > (?, ?)", query.after))
        selection = Selection(_POINT_COLUMNS, "time, metric", tuple(conditions))
        return self._page(
            query, POINTS_ROOM, selection, _point, self._buckets(POINTS_ROOM, first_us, last_us)
        )

    def rollups(self, query: RollupQuery) -> Page[Rollup]:
        room = ROLLUP_ROOMS[query.resolution]
        conditions = _equal([("level", query.level), ("key", query.key), ("metric", query.metric)])
        conditions += _between("window_start", query.first_us, query.last_us)
        if query.after is not None:
            conditions.append(("(epoch_us(window_start), level, key, metric) > (?, ?, ?, ?)", query.after))
        order = "window_start, level, key, metric"
        selection = Selection(_ROLLUP_COLUMNS, order, tuple(conditions), (("count > 0", ()),))
        return self._page(query, room, selection, _rollup, self._buckets(room, query.first_us, query.last_us))

    def events(self, query: EventQuery) -> Page[Event]:
        conditions: list[Condition] = [("status <> ?", (EventStatus.RETRACTED.value,)), *_equal(query.fields)]
        conditions += _between('"start"', None, query.last_us)
        conditions += _between('"end"', query.least_end_us, None)
        if query.after is not None:
            start_us, event_id = query.after
            conditions.append(
                (
                    '(epoch_us("start") < ? OR (epoch_us("start") = ? AND event_id > ?))',
                    (start_us, start_us, event_id),
                )
            )
        selection = Selection(_EVENT_COLUMNS, '"start" DESC, event_id', (), tuple(conditions))
        buckets = self._buckets(EVENTS_ROOM, None, query.last_us)
        return self._page(query, EVENTS_ROOM, selection, _event, buckets[::-1])

    def host_rollups_before(
        self, version: int, resolution: Resolution, first: datetime, last: datetime
    ) -> list[Rollup]:
        room, times = ROLLUP_ROOMS[resolution], (micros(first), micros(last))
        of_hosts = (*_equal([("level", Level.HOST)]), *_between("window_start", *times))
        older: tuple[Condition, ...] = (("version < ?", (version,)), ("count > 0", ()))
        selection = Selection(_ROLLUP_COLUMNS, "window_start", of_hosts, older)
        rows = first_rows(self._engine, self._root, room, selection, self._buckets(room, *times), _ALL)
        return list(map(_rollup, rows))

    def _buckets(self, room: Room, first_us: int | None, last_us: int | None) -> list[int]:
        return room.buckets(
            self._root,
            first_us // room.bucket_us if first_us is not None else None,
            last_us // room.bucket_us if last_us is not None else None,
        )

    def _page(
        self,
        query: Query[RowT],
        room: Room,
        selection: Selection,
        make: Callable[[tuple[Any, ...]], RowT],
        buckets: Sequence[int],
    ) -> Page[RowT]:
        rows = first_rows(self._engine, self._root, room, selection, buckets, query.limit + 1)
        return query.page(map(make, rows))

    def _newest(
        self, group: str, columns: str, conditions: list[Condition] | None = None
    ) -> list[tuple[Any, ...]]:
        chosen = conditions or []
        return with_fresh_files(
            self._root,
            lambda: newest_per(
                self._engine, self._all_points(), group, columns,
                [sql for sql, _ in chosen], [value for _, values in chosen for value in values],
            ),
        )  # fmt: skip

    def _all_points(self) -> list[LiveFiles]:
        room = POINTS_ROOM
        return [live_files(room.bucket_dir(self._root, bucket)) for bucket in room.buckets(self._root)]


def _equal(wanted: Iterable[tuple[str, str | None]]) -> list[Condition]:
    return [(f"{column} = ?", (str(value),)) for column, value in wanted if value is not None]


def _between(column: str, first_us: int | None, last_us: int | None) -> list[Condition]:
    conditions: list[Condition] = []
    if first_us is not None:
        conditions.append((f"{column} >= make_timestamptz(?::BIGINT)", (first_us,)))
    if last_us is not None:
        conditions.append((f"{column} <= make_timestamptz(?::BIGINT)", (last_us,)))
    return conditions


def _point(row: tuple[Any, ...]) -> Point:
    return Point(moment(row[0]), *row[1:])


def _gpu(row: tuple[Any, ...]) -> Gpu:
    uuid, gpu_id, device, model_name, hostname, time_us = row
    return Gpu(uuid, gpu_id, device, model_name, hostname, moment(time_us))


def _latest(row: tuple[Any, ...]) -> LatestValue:
    uuid, hostname, metric, value, time_us = row
    return LatestValue(uuid, hostname, metric, value, moment(time_us))


def _rollup(row: tuple[Any, ...]) -> Rollup:
    resolution, start, level, *rest = row
    return Rollup(Resolution(resolution), moment(start), Level(level), *rest)


def _event(row: tuple[Any, ...]) -> Event:
    event_id, kind, severity, uuid, hostname, start, end, status, message, evidence = row
    return Event(
        event_id, kind, Severity(severity), uuid, hostname, moment(start), moment(end), EventStatus(status),
        message, evidence,
    )  # fmt: skip
