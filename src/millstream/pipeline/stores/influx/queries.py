"""Reads from the server: builds InfluxQL safely, and answers the queries of a store.

The server stores points with different tags separately, even if GPU, metric and time are the same; a reader gets one.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import Any
from urllib.parse import urlencode

import orjson

from millstream.pipeline.moments import micros, moment
from millstream.pipeline.stores import base, rows
from millstream.pipeline.stores.influx.connection import InfluxConnection, InfluxTarget, QueryRefused
from millstream.pipeline.stores.influx.lines import EVENTS_MEASUREMENT, POINT_TAGS, rollups_measurement

_READ_RETRY_FOR = timedelta(seconds=5)
_READ_TIMEOUT = timedelta(seconds=60)
_FIRST_US, _LAST_US = -9_223_372_036_854_775, 9_223_372_036_854_775
"""The range of times that the server supports."""
_LEAST_CHUNK = 1_000

_OURS = {EVENTS_MEASUREMENT, *map(rollups_measurement, rows.Resolution)}
_GPU_TAGS = '"uuid", "gpu_id", "device", "modelName", "Hostname"'
_ROLLUP_COLUMNS = '"level", "key", "hostname", "metric", "min", "max", "mean", "p95", "count"'
_EVENT_COLUMNS = '"event_id", "kind", "severity", "uuid", "hostname", "end", "status", "message", "evidence"'


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    tags: dict[str, str]
    rows: list[list[Any]]


class InfluxQl:
    """Queries one server, over one connection for each concurrent query. Safe to use from several threads."""

    def __init__(self, target: InfluxTarget) -> None:
        self._target = target
        self._idle: list[InfluxConnection] = []

    @classmethod
    def for_reading(cls, target: InfluxTarget) -> "InfluxQl":
        """For readers: waits longer for an answer, but retries an absent server less, because a person is waiting."""
        retry_for = min(target.retry_for, _READ_RETRY_FOR)
        return cls(replace(target, retry_for=retry_for, request_timeout=_READ_TIMEOUT))

    def select(self, statement: str) -> list[Series]:
        """The answer to a query; empty if the database does not exist yet."""
        options = {"q": statement, "db": self._target.database, "epoch": "u"}
        with self._connection() as connection:
            answer = connection.query(self._target.query_path, urlencode(options).encode())
        result = orjson.loads(answer)["results"][0]
        error = result.get("error")
        if error is None:
            return [
                Series(each["name"], each.get("tags") or {}, each.get("values") or [])
                for each in result.get("series", ())
            ]
        if str(error).startswith("database not found"):
            return []
        raise QueryRefused(f"InfluxDB at {self._target.address} refused a query: {error}")

    def in_order_of_time(
        self,
        source: str,
        conditions: list[str],
        times: tuple[int | None, int | None],
        chunk: int,
        *,
        newest_first: bool,
    ) -> Iterator[list[list[Any]]]:
        """Rows in parts, in order of time. All rows of one time are in the same part, in no particular order."""
        first_us, last_us = times
        order = f"ORDER BY time {'DESC' if newest_first else 'ASC'} LIMIT {chunk}"
        while first_us is None or last_us is None or first_us <= last_us:
            rows = self._rows(f"{source}{where([*conditions, *between(first_us, last_us)])} {order}")
            if len(rows) < chunk:
                yield rows
                return
            # The limit may have cut off some rows of the last time, so read all of that time.
            reached_us = rows[-1][0]
            same = self._rows(f"{source}{where([*conditions, f'time = {reached_us}u'])}")
            yield [row for row in rows if row[0] != reached_us] + same
            if newest_first:
                last_us = reached_us - 1
            else:
                first_us = reached_us + 1

    def _rows(self, statement: str) -> list[list[Any]]:
        return [row for series in self.select(statement) for row in series.rows]

    def execute(self, statement: str) -> None:
        try:
            self.select(statement)
        except QueryRefused as error:
            raise base.StoreUnavailable(str(error)) from error

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _connection(self) -> Iterator[InfluxConnection]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = InfluxConnection(self._target)
        try:
            yield connection
        finally:
            self._idle.append(connection)


class InfluxQueries(base.StoreReader):
    def __init__(self, server: InfluxQl) -> None:
        self._server = server

    def close(self) -> None:
        self._server.close()

    def all_gpus(self, uuid: str | None = None) -> list[rows.Gpu]:
        newest: dict[str, rows.Gpu] = {}
        wanted = {} if uuid is None else {"uuid": uuid}
        for each in self._points(
            'last("value")', self.measurements(), equals(wanted), f" GROUP BY {_GPU_TAGS}"
        ):
            tags, seen = each.tags, moment(each.rows[0][0])
            gpu = rows.Gpu(
                tags["uuid"], tags["gpu_id"], tags["device"], tags["modelName"], tags["Hostname"], seen
            )
            known = newest.get(gpu.uuid)
            if known is None or known.last_seen < gpu.last_seen:
                newest[gpu.uuid] = gpu
        return [newest[uuid] for uuid in sorted(newest)]

    def all_latest(self, metric: str | None) -> list[rows.LatestValue]:
        newest: dict[tuple[str, str], rows.LatestValue] = {}
        for each in self._points(
            'last("value")', self.measurements(metric), [], ' GROUP BY "uuid", "Hostname"'
        ):
            time_us, value = each.rows[0]
            uuid, host = each.tags.get("uuid", ""), each.tags.get("Hostname", "")
            seen = rows.LatestValue(uuid, host, each.name, float(value), moment(time_us))
            known = newest.get((uuid, each.name))
            if known is None or known.time < seen.time:
                newest[uuid, each.name] = seen
        return [newest[key] for key in sorted(newest)]

    def metrics(self) -> tuple[rows.MetricCount, ...]:
        counted = self._points('count("value")', self.measurements(), [], "")
        counts = sorted((each.name, int(each.rows[0][1])) for each in counted)
        return tuple(rows.MetricCount(name, points) for name, points in counts)

    def telemetry(self, query: base.TelemetryQuery) -> base.Page[rows.Point]:
        after, (first_us, last_us) = query.after, base.bounds_us(query)
        if first_us is not None and last_us is not None and first_us > last_us:
            return base.Page((), None)
        # The limit applies to each series, whose first row may be the one that the last page ended with.
        tail = f" GROUP BY * ORDER BY time ASC LIMIT {query.limit + 2}"
        found: dict[tuple[int, str], rows.Point] = {}
        conditions = [*equals({"uuid": query.uuid}), *between(first_us, last_us)]
        for series in self._points('"value"', self.measurements(query.metric), conditions, tail):
            tags = {column: series.tags.get(tag, "") for tag, column in POINT_TAGS.items()}
            for time_us, value in series.rows:
                if after is None or (time_us, series.name) > after:
                    point = rows.Point(time=moment(time_us), metric=series.name, value=float(value), **tags)
                    found.setdefault((time_us, series.name), point)
        return query.page(found[place] for place in sorted(found))

    def rollups(self, query: base.RollupQuery) -> base.Page[rows.Rollup]:
        after, make = query.after, rows.maker(rows.Rollup)
        source = f"SELECT {_ROLLUP_COLUMNS} FROM {identifier(rollups_measurement(query.resolution))}"  # noqa: S608
        parts = self._server.in_order_of_time(
            source, [*equals(query.equal), '"count" > 0'], base.bounds_us(query), max(query.limit, _LEAST_CHUNK),
            newest_first=False,
        )  # fmt: skip
        found = chain.from_iterable(
            sorted((make([query.resolution, *row]) for row in part), key=query.place) for part in parts
        )
        return query.page(row for row in found if after is None or query.place(row) > after)

    def events(self, query: base.EventQuery) -> base.Page[rows.Event]:
        after, make = query.after, rows.maker(rows.Event)
        conditions = [*equals(query.equal), f"\"status\" <> '{rows.EventStatus.RETRACTED.value}'"]
        if query.start is not None:
            conditions.append(f'"end" >= {micros(query.start)}')
        source = f"SELECT {_EVENT_COLUMNS} FROM {identifier(EVENTS_MEASUREMENT)}"  # noqa: S608
        parts = self._server.in_order_of_time(
            source, conditions, base.bounds_us(query), max(query.limit, _LEAST_CHUNK), newest_first=True
        )
        # The server returns the time first; in the row it comes after the host.
        found = chain.from_iterable(
            sorted((make([*row[1:6], row[0], *row[6:]]) for row in part), key=_newest_first) for part in parts
        )
        return query.page(row for row in found if after is None or _newest_first(row) > (-after[0], after[1]))

    def measurements(self, metric: str | None = None) -> list[str]:
        """The measurements of points, or only the wanted one."""
        if metric is not None:
            return [metric]
        names = [row[0] for series in self._server.select("SHOW MEASUREMENTS") for row in series.rows]
        return [name for name in names if name not in _OURS]

    def _points(
        self, columns: str, measurements: list[str], conditions: list[str], tail: str
    ) -> list[Series]:
        if not measurements:
            return []
        sources = ", ".join(map(identifier, measurements))
        return self._server.select(f"SELECT {columns} FROM {sources}{where(conditions)}{tail}")  # noqa: S608


def _newest_first(event: rows.Event) -> tuple[int, str]:
    return -micros(event.start), event.event_id


def identifier(name: str) -> str:
    return '"' + _escaped(name).replace('"', '\\"') + '"'


def literal(value: str) -> str:
    return "'" + _escaped(value).replace("'", "\\'") + "'"


def equals(wanted: Mapping[str, str]) -> list[str]:
    return [f"{identifier(tag)} = {literal(value)}" for tag, value in wanted.items()]


def between(first_us: int | None, last_us: int | None) -> list[str]:
    limits = ((">=", first_us), ("<=", last_us))
    return [f"time {sign} {max(_FIRST_US, min(_LAST_US, us))}u" for sign, us in limits if us is not None]


def where(conditions: Iterable[str]) -> str:
    joined = " AND ".join(conditions)
    return f" WHERE {joined}" if joined else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
