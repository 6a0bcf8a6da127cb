"""The store of Parquet files: the reads and writes of Spark, and the queries of readers as SQL over the files.

To find the newest point and the count of every GPU and metric, not all points are read: a merge writes them beside the
merged file (`.series`). For the few files not merged yet they are computed from the points.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.pipeline.moments import micros
from millstream.pipeline.stores import base, rows
from millstream.pipeline.stores.parquet import engine, layout
from millstream.pipeline.stores.parquet.compaction import Upkeep, compact
from millstream.pipeline.stores.parquet.frames import FrameWriter, read_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ALL = 1 << 40


class ParquetStore(base.Store):
    """A store in the directory `root`, which may be on a file system that several machines share."""

    def __init__(self, root: Path, upkeep: Upkeep | None = None) -> None:
        self.root = root
        self.upkeep = upkeep if upkeep is not None else Upkeep()
        self._writer = FrameWriter(root)
        self._engine = engine.Engine(root)
        self._counted: Mapping[layout.LiveFiles, Mapping[str, int]] = {}

    def write_points(self, frame: "DataFrame", version: int) -> base.Rejected:
        self._writer.write(frame, {"": layout.POINTS_ROOM}, version)
        return ()

    def write_rollups(self, frame: "DataFrame", version: int) -> None:
        self._writer.write(frame, {str(each): room for each, room in layout.ROLLUP_ROOMS.items()}, version)

    def write_events(self, frame: "DataFrame", version: int) -> None:
        self._writer.write(frame, {"": layout.EVENTS_ROOM}, version)

    def points_frame(self, spark: "SparkSession", start: datetime, end: datetime) -> "DataFrame":
        return read_frame(spark, self.root, layout.POINTS_ROOM, start, end)

    def rollups_frame(
        self, spark: "SparkSession", resolution: rows.Resolution, start: datetime, end: datetime
    ) -> "DataFrame":
        return read_frame(spark, self.root, layout.ROLLUP_ROOMS[resolution], start, end, once=True)

    def last_version(self) -> int:
        rooms = [room for room in layout.ROOMS if "version" in room.table.precedence]
        files = engine.with_fresh_files(
            self.root, lambda: [file for room in rooms for each in self._live(room) for file in each.files]
        )
        return max((file.last_version for file in files), default=-1)

    def compact(self) -> base.Compaction:
        return engine.with_fresh_files(self.root, lambda: compact(self.root, self._engine, self.upkeep))

    def close(self) -> None:
        self._engine.close()

    def all_gpus(self, uuid: str | None = None) -> list[rows.Gpu]:
        columns = "uuid, gpu_id, device, model_name, hostname, epoch_us(time)"
        return list(
            map(rows.maker(rows.Gpu), self._newest("uuid", columns, {} if uuid is None else {"uuid": uuid}))
        )

    def all_latest(self, metric: str | None) -> list[rows.LatestValue]:
        columns = "uuid, hostname, metric, value, epoch_us(time)"
        found = self._newest("uuid, metric", columns, {} if metric is None else {"metric": metric})
        return list(map(rows.maker(rows.LatestValue), found))

    def metrics(self) -> tuple[rows.MetricCount, ...]:
        counts = engine.with_fresh_files(self.root, self._counts)
        return tuple(rows.MetricCount(metric, points) for metric, points in sorted(counts.items()))

    def telemetry(self, query: base.TelemetryQuery) -> base.Page[rows.Point]:
        later = [_behind("({0}, metric) > (?, ?)", layout.POINTS_ROOM, query.after)]
        return query.page(self._rows(layout.POINTS_ROOM, rows.Point, query, [*_equal(query.equal), *later]))

    def rollups(self, query: base.RollupQuery) -> base.Page[rows.Rollup]:
        room = layout.ROLLUP_ROOMS[query.resolution]
        behind = _behind("({0}, level, key, metric) > (?, ?, ?, ?)", room, query.after)
        return query.page(
            self._rows(room, rows.Rollup, query, [*_equal(query.equal), behind], [("count > 0", ())])
        )

    def events(self, query: base.EventQuery) -> base.Page[rows.Event]:
        after = None if query.after is None else (query.after[0], *query.after)
        later: list[engine.Condition] = [
            ("status <> ?", (rows.EventStatus.RETRACTED.value,)),
            *_equal(query.equal),
            *_between("end", None if query.start is None else micros(query.start), None),
            _behind("({0} < ? OR ({0} = ? AND event_id > ?))", layout.EVENTS_ROOM, after),
        ]
        return query.page(self._rows(layout.EVENTS_ROOM, rows.Event, query, [], later))

    def host_rollups_before(
        self, version: int, resolution: rows.Resolution, first: datetime, last: datetime
    ) -> list[rows.Rollup]:
        query = base.RollupQuery(resolution, rows.Level.HOST, start=first, end=last, limit=_ALL)
        older: list[engine.Condition] = [("version < ?", (version,)), ("count > 0", ())]
        return self._rows(layout.ROLLUP_ROOMS[resolution], rows.Rollup, query, _equal(query.equal), older)

    def _rows(
        self,
        room: layout.Room,
        kind: type[rows.RowT],
        query: base.TelemetryQuery | base.RollupQuery | base.EventQuery,
        early: Sequence[engine.Condition],
        later: Sequence[engine.Condition] = (),
    ) -> list[rows.RowT]:
        """The rows of one page. `early` may use only columns of the identity."""
        first_us, last_us = base.bounds_us(query)
        times = _between(room.table.time, first_us, last_us)
        newest_first = isinstance(query, base.EventQuery)
        order = [f'"{name}"' for name in query.order]
        selection = engine.Selection(
            ", ".join(
                f'epoch_us("{field.name}")' if field.type is datetime else f'"{field.name}"'
                for field in msgspec.structs.fields(kind)
            ),
            ", ".join([f"{order[0]} DESC", *order[1:]] if newest_first else order),
            # The time of an event is not part of its identity: a later version may begin at another time.
            early if newest_first else [*early, *times],
            [*later, *times] if newest_first else later,
        )
        buckets = room.buckets(
            self.root,
            None if first_us is None else first_us // room.bucket_us,
            None if last_us is None else last_us // room.bucket_us,
        )
        in_order = buckets[::-1] if newest_first else buckets
        found = engine.first_rows(self._engine, self.root, room, selection, in_order, query.limit + 1)
        return list(map(rows.maker(kind), found))

    def _live(self, room: layout.Room) -> list[layout.LiveFiles]:
        return [layout.live_files(room.bucket_dir(self.root, bucket)) for bucket in room.buckets(self.root)]

    def _newest(self, group: str, columns: str, equal: Mapping[str, str]) -> list[tuple[Any, ...]]:
        """`columns` of the newest point of every `group`, in the group's order."""
        conditions = _equal(equal)
        where = " AND ".join(["true", *(sql for sql, _ in conditions)])
        values = [value for _, values in conditions for value in values]

        def ask() -> list[tuple[Any, ...]]:
            files = self._live(layout.POINTS_ROOM)
            parts = [
                [path for each in files for path in each.series_paths],
                [path for each in files for path in each.batch_paths],
            ]
            paths = [part for part in parts if part]
            if not paths:
                return []
            scan = f"SELECT {engine.SERIES_COLUMNS} FROM {engine.SCAN} WHERE {where}"  # noqa: S608
            scans = " UNION ALL ".join([scan] * len(paths))
            newest = f"SELECT unnest(arg_max(point, {engine.LAST_IN_LOG})) FROM ({scans}) AS point GROUP BY {group}"  # noqa: S608
            sql = f"SELECT {columns} FROM ({newest}) ORDER BY {group}"  # noqa: S608
            return self._engine.rows(sql, [value for part in paths for value in (part, *values)])

        return engine.with_fresh_files(self.root, ask)

    def _counts(self) -> Counter[str]:
        """The points of each metric, each identity once. The count of a bucket is cached until its files change."""
        files = self._live(layout.POINTS_ROOM)
        total: Counter[str] = Counter()
        merged = [path for each in files if each.is_merged for path in each.series_paths]
        if merged:
            sql = f"SELECT metric, sum(points)::BIGINT FROM {engine.SCAN} GROUP BY metric"  # noqa: S608
            total.update(dict(self._engine.rows(sql, [merged])))
        known = self._counted
        mixed = [each for each in files if each.files and not each.is_merged]
        # This drops buckets that are merged by now; other threads may do the same concurrently.
        self._counted = counted = {each: known.get(each) or self._count(each) for each in mixed}
        for counts in counted.values():
            total.update(counts)
        return total

    def _count(self, files: layout.LiveFiles) -> Mapping[str, int]:
        once = f"SELECT DISTINCT uuid, metric, time FROM {engine.SCAN}"  # noqa: S608
        sql = f"SELECT metric, count(*) FROM ({once}) GROUP BY metric"  # noqa: S608
        return dict(self._engine.rows(sql, [files.paths]))


def _equal(wanted: Mapping[str, str]) -> list[engine.Condition]:
    return [(f"{column} = ?", (value,)) for column, value in wanted.items()]


def _between(column: str, first_us: int | None, last_us: int | None) -> list[engine.Condition]:
    limits = ((">=", first_us), ("<=", last_us))
    return [
        (f'"{column}" {sign} make_timestamptz(?::BIGINT)', (limit,))
        for sign, limit in limits
        if limit is not None
    ]


def _behind(sql: str, room: layout.Room, after: tuple[Any, ...] | None) -> engine.Condition:
    """The condition for rows after the previous page; {0} in `sql` stands for the time of a row."""
    return (sql.format(f'epoch_us("{room.table.time}")'), after) if after is not None else ("true", ())
