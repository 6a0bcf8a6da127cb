"""The InfluxDB store against Debian's InfluxDB 1.x, written by Spark."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.moments import micros
from millstream.pipeline.stores.base import (
    EventQuery,
    GpuQuery,
    LatestQuery,
    RollupQuery,
    StoreUnavailable,
    TelemetryQuery,
)
from millstream.pipeline.stores.influx.connection import parse_target
from millstream.pipeline.stores.influx.store import InfluxStore
from millstream.pipeline.stores.rows import EventStatus, Level, Resolution, Severity
from support.influx import InfluxProcess, influxd_path
from support.store_rows import (
    TEMP,
    UTIL,
    at,
    count_points,
    event,
    events_frame,
    point,
    points_frame,
    rollup,
    rollups_frame,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(influxd_path() is None, reason="influxd is not installed (Debian package influxdb)"),
]


@pytest.fixture(scope="module")
def influx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxProcess]:
    server = InfluxProcess(tmp_path_factory.mktemp("influx"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def store(influx: InfluxProcess, tmp_path: Path) -> Iterator[InfluxStore]:
    made = open_influx(influx, tmp_path)
    try:
        yield made
    finally:
        influx.query(f'DROP DATABASE "{made.target.database}"')
        made.close()


def open_influx(
    influx: InfluxProcess,
    tmp_path: Path,
    *,
    gzip: bool | None = None,
    retention: timedelta | None = None,
    patience: timedelta = timedelta(seconds=90),
) -> InfluxStore:
    database = f"test {tmp_path.name}"
    options = {"db": database} | ({} if gzip is None else {"gzip": str(gzip).lower()})
    target = parse_target(influx.url, options, "", is_v2=False)
    bounded = replace(target, retry_for=patience, request_timeout=patience)
    return InfluxStore(bounded, tmp_path / "lake", retention)


def test_points_come_back_as_they_were_written(store: InfluxStore, spark: "SparkSession") -> None:
    odd = {
        "labels_raw": 'a="b, c",d=e f,back\\slash,path=C:\\x,q=\\,',
        "pod": "pød 1",
        "container": "a=b",
        "namespace": "tab\there",
    }
    rows = [
        point(0, value=0.1),
        point(0, metric=TEMP, value=1.5e300, **odd),
        point(1.000001, value=-3),
        point(2, "GPU-2", hostname="host-2", value=1e-7),
    ]
    assert not store.write_points(points_frame(spark, rows), 0)
    found = store.telemetry(TelemetryQuery("GPU-1", at(0), at(10))).rows
    assert [(p.time, p.metric, p.value) for p in found] == [
        (at(0), TEMP, 1.5e300), (at(0), UTIL, 0.1), (at(1.000001), UTIL, -3.0),
    ]  # fmt: skip
    assert {name: getattr(found[0], name) for name in odd} == odd
    assert count_points(store) == 4
    assert [gpu.uuid for gpu in store.gpus(GpuQuery()).rows] == ["GPU-1", "GPU-2"]
    assert [(host.hostname, host.gpus, host.last_seen) for host in store.hosts()] == [
        ("host-1", 1, at(1.000001)), ("host-2", 1, at(2)),
    ]  # fmt: skip
    assert [(v.uuid, v.metric, v.value) for v in store.latest(LatestQuery(metric=UTIL))] == [
        ("GPU-1", UTIL, -3.0), ("GPU-2", UTIL, 1e-7),
    ]  # fmt: skip
    assert [(m.metric, m.points) for m in store.metrics()] == [(TEMP, 1), (UTIL, 3)]


def test_writing_again_changes_nothing(store: InfluxStore, spark: "SparkSession") -> None:
    frame = points_frame(spark, [point(i, source_offset=i, value=i) for i in range(20)])
    for version in (0, 0, 1):
        assert not store.write_points(frame, version)
    assert count_points(store) == 20
    assert store.points_frame(spark, at(0), at(100)).distinct().count() == 20


def test_pages_follow_each_other_without_gaps(store: InfluxStore, spark: "SparkSession") -> None:
    rows = [point(i // 2, metric=UTIL if i % 2 else TEMP, value=i) for i in range(11)]
    store.write_points(points_frame(spark, rows), 0)
    values, cursor = [], None
    while True:
        page = store.telemetry(TelemetryQuery("GPU-1", at(0), at(10), limit=3, cursor=cursor))
        values += [p.value for p in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert values == [float(i) for i in range(11)]


def test_points_that_the_server_refuses_are_returned_with_its_reason(
    store: InfluxStore, influx: InfluxProcess, spark: "SparkSession"
) -> None:
    influx.query(f'CREATE DATABASE "{store.target.database}"')
    taken = int(at(0).timestamp() * 1e6)
    assert influx.write(f"{TEMP},uuid=x value=1i {taken}", store.target.database)[0] == 204
    rows = [
        point(i, metric=TEMP if i % 50 == 0 else UTIL, source_partition=3, source_offset=i)
        for i in range(400)
    ]
    rejected = store.write_points(points_frame(spark, rows), 0)
    assert sorted(p.source_offset for p in rejected) == [0, 50, 100, 150, 200, 250, 300, 350]
    first = min(rejected, key=lambda p: p.source_offset)
    assert "field type conflict" in first.reason
    assert (first.source_partition, first.uuid, first.metric, first.time) == (3, "GPU-1", TEMP, at(0))
    assert sum(m.points for m in store.metrics() if m.metric == UTIL) == 392
    assert store.points_frame(spark, at(0), at(1000)).count() == 392


def test_what_line_protocol_cannot_say_is_refused_and_the_rest_stored(
    store: InfluxStore, spark: "SparkSession"
) -> None:
    rows = [
        point(0, source_offset=0, pod="ends in a backslash\\"),
        point(1, source_offset=1, labels_raw="two\nlines"),
        point(2, source_offset=2, value=float("nan")),
        point(3, source_offset=3, value=float("inf")),
        point(4, source_offset=4, metric="#comment"),
        point(5, source_offset=5),
    ]
    rejected = store.write_points(points_frame(spark, rows), 0)
    assert {p.source_offset: p.reason.split(":")[-1].strip() for p in rejected} == {
        0: "pod", 1: "labels_raw", 2: "InfluxDB stores finite numbers only",
        3: "InfluxDB stores finite numbers only", 4: "not a name of a measurement",
    }  # fmt: skip
    assert [p.time for p in store.telemetry(TelemetryQuery("GPU-1", at(0), at(10))).rows] == [at(5)]


def test_points_beyond_the_retention_policy_are_refused(
    store: InfluxStore, influx: InfluxProcess, spark: "SparkSession"
) -> None:
    influx.query(f'CREATE DATABASE "{store.target.database}" WITH DURATION 1h')
    rejected = store.write_points(points_frame(spark, [point(0), point(1)]), 0)
    assert all("points beyond retention policy" in p.reason for p in rejected)
    assert len(rejected) == 2


def test_rollups_and_events_are_measurements_with_tags(store: InfluxStore, spark: "SparkSession") -> None:
    rows = [rollup(60 * i, key=f"GPU-{j}", mean=i + j / 8) for i in range(3) for j in range(4)]
    rows += [rollup(0, level="fleet", key="fleet", hostname=""), rollup(0, resolution="1h", count=0)]
    store.write_rollups(rollups_frame(spark, rows), 1)
    store.write_rollups(rollups_frame(spark, [{**rows[0], "mean": 9.0}]), 2)
    page = store.rollups(RollupQuery(Resolution.MINUTE, level=Level.GPU, limit=5))
    assert [(r.window_start, r.key, r.mean) for r in page.rows] == [
        (at(0), "GPU-0", 9.0), (at(0), "GPU-1", 0.125), (at(0), "GPU-2", 0.25), (at(0), "GPU-3", 0.375),
        (at(60), "GPU-0", 1.0),
    ]  # fmt: skip
    rest = store.rollups(RollupQuery(Resolution.MINUTE, level=Level.GPU, limit=100, cursor=page.next_cursor))
    assert (len(rest.rows), rest.next_cursor) == (7, None)
    assert [r.hostname for r in store.rollups(RollupQuery(Resolution.MINUTE, level=Level.FLEET)).rows] == [""]
    assert store.rollups(RollupQuery(Resolution.HOUR)).rows == ()
    text = 'it said "hot",\nand\\or = 1'
    events = [
        event(0, "a", message=text),
        event(30, "b", severity="critical"),
        event(10, "c", status="retracted"),
    ]
    store.write_events(events_frame(spark, events), 1)
    store.write_events(events_frame(spark, [event(30, "b", severity="info", status="closed")]), 2)
    found = store.events(EventQuery()).rows
    assert [(e.event_id, e.severity, e.status) for e in found] == [
        ("b", Severity.INFO, EventStatus.CLOSED), ("a", Severity.WARNING, EventStatus.OPEN),
    ]  # fmt: skip
    assert (found[1].message, found[1].evidence, found[1].end) == (text, '{"max": 91}', at(60))
    assert [
        e.event_id for e in store.events(EventQuery(severity=Severity.INFO, end=at(30), start=at(90))).rows
    ] == ["b"]
    assert count_points(store) == 0, "rollups and events are not points"
    assert store.last_version() == 2


def test_a_server_that_is_down_or_hangs_is_reported_and_nothing_is_lost(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    server = InfluxProcess(tmp_path / "server")
    store, impatient = (
        open_influx(server, tmp_path),
        open_influx(server, tmp_path, patience=timedelta(seconds=1)),
    )
    frame = points_frame(spark, [point(i, source_offset=i) for i in range(10)])
    try:
        with pytest.raises(StoreUnavailable, match=r"has not taken a request for 1 s.*is it running"):
            impatient.write_points(frame, 0)
        server.start()
        assert not store.write_points(frame, 0)
        server.pause()
        with pytest.raises(StoreUnavailable, match="timed out"):
            impatient.write_points(frame, 1)
        server.kill()
        server.start()
        assert not store.write_points(frame, 1)
        assert count_points(store) == 10
    finally:
        for each in (store, impatient):
            each.close()
        server.stop()


def test_what_the_lake_no_longer_has_is_read_back_from_the_server(
    influx: InfluxProcess, tmp_path: Path, spark: "SparkSession"
) -> None:
    from pyspark.sql import functions as f

    now = (datetime.now(UTC) - at(0)).total_seconds()
    rows = [
        point(i, metric=metric, value=i / 3, pod="a,b") for i in (0, 1, 650, now) for metric in (UTIL, TEMP)
    ]
    store = open_influx(influx, tmp_path, gzip=True)
    assert not store.write_points(points_frame(spark, rows), 0)
    store.close()
    store = open_influx(influx, tmp_path, retention=timedelta(hours=2))
    assert store.compact().expired_files > 0
    columns = ("time", "metric", "value", "pod", "model_name")
    found = (
        store.points_frame(spark, at(0), at(now + 1)).select(f.unix_micros("time"), *columns[1:]).collect()
    )
    assert sorted(map(tuple, found)) == sorted(
        (micros(row["time"]), *(row[name] for name in columns[1:])) for row in rows
    )
    store.close()
    longer = open_influx(influx, tmp_path, retention=timedelta(days=9999))
    assert longer.points_frame(spark, at(0), at(1)).count() == 2, (
        "a longer retention does not bring files back"
    )
    longer.close()
