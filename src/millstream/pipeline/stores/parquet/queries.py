"""The questions that the store answers, as SQL over its files."""

from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from millstream.pipeline.stores.base import Cursor, Page
from millstream.pipeline.stores.keys import check_cursor
from millstream.pipeline.stores.parquet.engine import Engine, with_fresh_files
from millstream.pipeline.stores.parquet.layout import (
    EVENTS_ROOM,
    POINTS_ROOM,
    ROLLUP_ROOMS,
)
from millstream.pipeline.stores.parquet.live import LiveFiles, live_files
from millstream.pipeline.stores.parquet.reading import Selection, read_page
from millstream.pipeline.stores.parquet.series import PointCounts, newest_per
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
_GPU_COLUMNS = "uuid, gpu_id, device, model_name, hostname, epoch_us(time)"


class ParquetQueries:
    """Implements `StoreReader`."""

    def __init__(self, root: Path, engine: Engine) -> None:
        self._root = root
        self._engine = engine
        self._counts = PointCounts(root, engine)

    def gpus(
        self, *, hostname: str | None = None, limit: int = 1000, cursor: Cursor | None = None
    ) -> Page[Gpu]:
        after = check_cursor(cursor, str)
        # The host is compared afterwards: a GPU belongs where it was seen last.
        rows = self._newest("uuid", _GPU_COLUMNS, [("uuid > ?", (after[0],))] if after else [])
        gpus = [_gpu(row) for row in rows if hostname is None or row[4] == hostname]
        found = tuple(gpus[:limit])
        return Page(found, (found[-1].uuid,) if len(gpus) > limit else None)

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

    def latest(
        self, *, metric: str | None = None, hostname: str | None = None, limit: int = 1000
    ) -> tuple[LatestValue, ...]:
        conditions = _equal([("metric", metric)])
        rows = self._newest("uuid, metric", "uuid, hostname, metric, value, epoch_us(time)", conditions)
        chosen = (row for row in rows if hostname is None or row[1] == hostname)
        return tuple(map(_latest, islice(chosen, limit)))

    def count_points(self) -> int:
        return sum(each.points for each in self.metrics())

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
        first_us, last_us = micros(start), micros(end)
        conditions = _equal([("uuid", uuid), ("metric", metric)])
        if after is not None:
            first_us = max(first_us, int(after[0]))
            conditions.append(("(epoch_us(time), metric) > (?, ?)", tuple(after)))
        conditions += _between("time", first_us, last_us)
        room = POINTS_ROOM
        buckets = room.buckets(self._root, first_us // room.bucket_us, last_us // room.bucket_us)
        return read_page(
            self._engine, self._root, room,
            Selection(_POINT_COLUMNS, "time, metric", tuple(conditions)),
            buckets, limit,
            lambda row: Point(moment(row[0]), *row[1:]),
            lambda point: (micros(point.time), point.metric),
        )  # fmt: skip

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
        conditions = _equal([("level", level), ("key", key), ("metric", metric)])
        first_us = micros(start) if start is not None else None
        last_us = micros(end) if end is not None else None
        if after is not None:
            first_us = max(first_us, int(after[0])) if first_us is not None else int(after[0])
            conditions.append(
                ("(epoch_us(window_start), level, key, metric) > (?, ?, ?, ?)", tuple(after)),
            )
        conditions += _between("window_start", first_us, last_us)
        room = ROLLUP_ROOMS[resolution]
        buckets = room.buckets(
            self._root,
            first_us // room.bucket_us if first_us is not None else None,
            last_us // room.bucket_us if last_us is not None else None,
        )
        order = "window_start, level, key, metric"
        return read_page(
            self._engine, self._root, room,
            Selection(_ROLLUP_COLUMNS, order, tuple(conditions), (("count > 0", ()),)),
            buckets, limit, _rollup,
            lambda rollup: (micros(rollup.window_start), rollup.level.value, rollup.key, rollup.metric),
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
        conditions: list[Condition] = [("status <> ?", (EventStatus.RETRACTED.value,))]
        conditions += _equal(
            [
                ("kind", kind),
                ("severity", severity),
                ("uuid", uuid),
                ("hostname", hostname),
                ("status", status),
            ]
        )
        last_us = micros(end) if end is not None else None
        if after is not None:
            last_us = min(last_us, int(after[0])) if last_us is not None else int(after[0])
            conditions.append(
                ('(epoch_us("start") < ? OR (epoch_us("start") = ? AND event_id > ?))', (after[0], *after))
            )
        conditions += _between('"start"', None, last_us)
        conditions += _between('"end"', micros(start) if start is not None else None, None)
        room = EVENTS_ROOM
        buckets = room.buckets(self._root, None, last_us // room.bucket_us if last_us is not None else None)
        return read_page(
            self._engine, self._root, room,
            Selection(_EVENT_COLUMNS, '"start" DESC, event_id', (), tuple(conditions)),
            buckets[::-1], limit, _event,
            lambda event: (micros(event.start), event.event_id),
        )  # fmt: skip

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


def _equal(wanted: list[tuple[str, str | None]]) -> list[Condition]:
    return [(f"{column} = ?", (str(value),)) for column, value in wanted if value is not None]


def _between(column: str, first_us: int | None, last_us: int | None) -> list[Condition]:
    conditions: list[Condition] = []
    if first_us is not None:
        conditions.append((f"{column} >= make_timestamptz(?::BIGINT)", (first_us,)))
    if last_us is not None:
        conditions.append((f"{column} <= make_timestamptz(?::BIGINT)", (last_us,)))
    return conditions


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
