"""Reading the Parquet store: pages, order, what counts of several rows with one identity."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.pipeline.stores.base import (
    EventQuery,
    GpuQuery,
    InvalidCursor,
    LatestQuery,
    RollupQuery,
    TelemetryQuery,
)
from millstream.pipeline.stores.parquet.layout import EVENTS_ROOM, HOURS_ROOM, MINUTES_ROOM
from millstream.pipeline.stores.parquet.store import ParquetStore
from millstream.pipeline.stores.rows import EventStatus, Level, Resolution, Severity
from support.store_rows import TEMP, UTIL, at, count_points, event, point, put, rollup


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ParquetStore]:
    made = ParquetStore(tmp_path / "store")
    yield made
    made.close()


def test_a_store_that_does_not_exist_yet_is_empty(store: ParquetStore) -> None:
    assert count_points(store) == 0
    assert store.gpus(GpuQuery()).rows == ()
    assert store.gpu("GPU-1") is None
    assert store.telemetry(TelemetryQuery("GPU-1", at(0), at(1))).rows == ()
    assert store.last_version() == -1


def test_a_point_keeps_its_microsecond_and_its_value(store: ParquetStore) -> None:
    put(store.root, [point(0.000001, value=0.1), point(-1e9, value=1e300)])
    (found,) = store.telemetry(TelemetryQuery("GPU-1", at(0), at(1))).rows
    assert (found.time, found.value, found.model_name) == (at(0.000001), 0.1, "NVIDIA H100 80GB HBM3")
    assert store.telemetry(TelemetryQuery("GPU-1", at(-2e9), at(0))).rows[0].time == at(-1e9)


def test_both_ends_of_a_time_range_count(store: ParquetStore) -> None:
    put(store.root, [point(i) for i in range(10)])
    assert [p.time for p in store.telemetry(TelemetryQuery("GPU-1", at(3), at(5))).rows] == [
        at(3),
        at(4),
        at(5),
    ]
    assert store.telemetry(TelemetryQuery("GPU-1", at(5), at(3))).rows == ()


def test_the_highest_offset_counts_whatever_the_version(store: ParquetStore) -> None:
    put(store.root, [point(value=2.0, source_offset=20)], version=1)
    put(store.root, [point(value=1.0, source_offset=10)], version=7)
    put(store.root, [point(value=2.0, source_offset=20)], version=7)
    assert [p.value for p in store.telemetry(TelemetryQuery("GPU-1", at(0), at(1))).rows] == [2.0]
    assert (count_points(store), store.latest(LatestQuery())[0].value) == (1, 2.0)


def test_counts_follow_what_is_written(store: ParquetStore) -> None:
    put(store.root, [point(3600 * i) for i in range(-3, 3)])
    assert count_points(store) == 6
    put(store.root, [point(0), point(1), point(3600, metric=TEMP)])
    assert [(m.metric, m.points) for m in store.metrics()] == [(TEMP, 1), (UTIL, 7)]
    assert count_points(store) == 8
    put(store.root, [point(-1e10)])
    assert count_points(store) == 9


def test_pages_cross_hours(store: ParquetStore) -> None:
    rows = [point(1800 * i, metric=metric, value=i) for i in range(9) for metric in (UTIL, TEMP)]
    put(store.root, rows[::-1])
    whole = store.telemetry(TelemetryQuery("GPU-1", at(0), at(1e6))).rows
    assert [(p.time, p.metric) for p in whole] == sorted((row["time"], row["metric"]) for row in rows)
    for limit in (1, 4, 18):
        found, cursor = [], None
        while True:
            page = store.telemetry(TelemetryQuery("GPU-1", at(0), at(1e6), limit=limit, cursor=cursor))
            assert 0 < len(page.rows) <= limit
            found += page.rows
            cursor = page.next_cursor
            if cursor is None:
                break
        assert tuple(found) == whole


def test_a_gpu_is_where_it_was_seen_last(store: ParquetStore) -> None:
    put(store.root, [point(0, hostname="old"), point(10, hostname="new"), point(5, "GPU-2", hostname="old")])
    assert [(gpu.uuid, gpu.hostname, gpu.last_seen) for gpu in store.gpus(GpuQuery()).rows] == [
        ("GPU-1", "new", at(10)), ("GPU-2", "old", at(5)),
    ]  # fmt: skip
    assert [gpu.uuid for gpu in store.gpus(GpuQuery(hostname="old")).rows] == ["GPU-2"]
    assert [(host.hostname, host.gpus) for host in store.hosts()] == [("new", 1), ("old", 1)]
    first = store.gpus(GpuQuery(limit=1))
    assert [gpu.uuid for gpu in store.gpus(GpuQuery(cursor=first.next_cursor)).rows] == ["GPU-2"]


def test_latest_values(store: ParquetStore) -> None:
    put(
        store.root,
        [point(i, f"GPU-{g}", metric, value=i) for i in range(3) for g in (1, 2) for metric in (UTIL, TEMP)],
    )
    assert [(v.uuid, v.metric, v.value) for v in store.latest(LatestQuery())] == [
        ("GPU-1", TEMP, 2.0), ("GPU-1", UTIL, 2.0), ("GPU-2", TEMP, 2.0), ("GPU-2", UTIL, 2.0),
    ]  # fmt: skip
    assert [v.uuid for v in store.latest(LatestQuery(metric=UTIL, hostname="host-1", limit=1))] == ["GPU-1"]
    assert store.latest(LatestQuery(hostname="elsewhere")) == ()


def test_the_last_computed_rollup_counts(store: ParquetStore) -> None:
    put(store.root, [rollup(0, mean=1.0), rollup(60)], version=1, room=MINUTES_ROOM)
    put(store.root, [rollup(0, mean=5.0)], version=3, room=MINUTES_ROOM)
    put(store.root, [rollup(60, count=0)], version=3, room=MINUTES_ROOM)
    put(store.root, [rollup(0, mean=3.0)], version=2, room=MINUTES_ROOM)
    put(store.root, [rollup(0, resolution="1h")], version=4, room=HOURS_ROOM)
    assert [(r.window_start, r.mean) for r in store.rollups(RollupQuery(Resolution.MINUTE)).rows] == [
        (at(0), 5.0)
    ]
    assert [r.resolution for r in store.rollups(RollupQuery(Resolution.HOUR)).rows] == [Resolution.HOUR]
    assert store.last_version() == 4


def test_rollups_by_level_key_metric_and_time(store: ParquetStore) -> None:
    rows = [
        rollup(60 * i, level=level, key=key, metric=metric)
        for i in range(130)
        for level, key in (("gpu", "GPU-1"), ("gpu", "GPU-2"), ("host", "host-1"), ("fleet", "fleet"))
        for metric in (UTIL, TEMP)
    ]
    put(store.root, rows, room=MINUTES_ROOM)
    found = store.rollups(
        RollupQuery(Resolution.MINUTE, level=Level.GPU, key="GPU-2", metric=TEMP, start=at(60), end=at(7200))
    ).rows
    assert [r.window_start for r in found] == [at(60 * i) for i in range(1, 121)]
    keys, cursor = [], None
    while True:
        page = store.rollups(RollupQuery(Resolution.MINUTE, limit=99, cursor=cursor))
        keys += [(r.window_start, r.level.value, r.key, r.metric) for r in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert keys == sorted(keys)
    assert len(set(keys)) == len(rows)


def test_events_newest_first_and_as_they_are_now(store: ParquetStore) -> None:
    put(
        store.root, [event(0, "a"), event(0, "b"), event(86400 * 2, "c", severity="critical")], 1, EVENTS_ROOM
    )
    put(store.root, [event(0, "b", status="retracted")], 2, EVENTS_ROOM)
    put(store.root, [event(0, "a", status="closed", end=at(7200))], 3, EVENTS_ROOM)
    assert [e.event_id for e in store.events(EventQuery()).rows] == ["c", "a"]
    assert [e.event_id for e in store.events(EventQuery(status=EventStatus.CLOSED)).rows] == ["a"]
    assert [e.event_id for e in store.events(EventQuery(status=EventStatus.RETRACTED)).rows] == []
    assert [e.event_id for e in store.events(EventQuery(severity=Severity.CRITICAL)).rows] == ["c"]
    assert [e.event_id for e in store.events(EventQuery(start=at(7200), end=at(7300))).rows] == ["a"], (
        "overlaps"
    )
    assert [e.event_id for e in store.events(EventQuery(start=at(7201), end=at(7300))).rows] == []
    page = store.events(EventQuery(limit=1))
    assert [e.event_id for e in store.events(EventQuery(limit=1, cursor=page.next_cursor)).rows] == ["a"]


@pytest.mark.parametrize("cursor", [[], [1], ["x", UTIL], [1, 2], [True, UTIL], [1 << 63, UTIL]])
def test_a_cursor_of_another_kind_is_refused(store: ParquetStore, cursor: list[str | int]) -> None:
    with pytest.raises(InvalidCursor):
        store.telemetry(TelemetryQuery("GPU-1", at(0), at(1), cursor=cursor))
