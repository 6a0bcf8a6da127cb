"""The Parquet store written by Spark."""

import os
import socket
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.stores.base import EventQuery, RollupQuery, StoreUnavailable, TelemetryQuery
from millstream.pipeline.stores.parquet.compaction import Upkeep
from millstream.pipeline.stores.parquet.store import ParquetStore
from millstream.pipeline.stores.rows import Resolution
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

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ParquetStore]:
    made = ParquetStore(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def far_east(spark: "SparkSession") -> Iterator[None]:
    """A session in another time zone than ours: what is stored must not depend on it."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("far_east")
def test_points_written_twice_and_read_back(store: ParquetStore, spark: "SparkSession") -> None:
    rows = [
        point(1800 * i, metric=metric, value=i + 0.1, source_offset=i)
        for i in range(4)
        for metric in (UTIL, TEMP)
    ]
    frame = points_frame(spark, [*rows, rows[0]])
    assert not store.write_points(frame, 7)
    assert not store.write_points(frame, 7)
    assert count_points(store) == 8
    hours = sorted(path.relative_to(store.root).as_posix() for path in store.root.glob("points/*/*"))
    assert hours == ["points/date=2026-03-01/hour=12", "points/date=2026-03-01/hour=13"]
    found = store.telemetry(TelemetryQuery("GPU-1", at(1800), at(3600), metric=UTIL)).rows
    assert [(p.time, p.value) for p in found] == [(at(1800), 1.1), (at(3600), 2.1)]

    back = store.points_frame(spark, at(1800), at(3600)).dropDuplicates(["metric", "time"])
    assert sorted(back.columns) == sorted(frame.columns)
    assert sorted((row["metric"], row["value"]) for row in back.collect()) == [(TEMP, 1.1), (UTIL, 1.1)]
    merged = _merged(store)
    assert sorted(
        map(tuple, merged.points_frame(spark, at(0), at(1e5)).select("metric", "value").collect())
    ) == sorted((row["metric"], row["value"]) for row in rows)
    merged.close()
    assert store.points_frame(spark, at(1e6), at(1e7)).count() == 0


def _merged(store: ParquetStore) -> ParquetStore:
    other = ParquetStore(store.root, Upkeep(fan_in=2, quiet_after=timedelta(0)))
    assert other.compact().merged_files > 0
    return other


@pytest.mark.usefixtures("far_east")
def test_rollups_and_events(store: ParquetStore, spark: "SparkSession") -> None:
    minutes = [rollup(60 * i, mean=float(i)) for i in range(3)]
    store.write_rollups(rollups_frame(spark, [*minutes, rollup(0, resolution="1h", count=180)]), 1)
    store.write_rollups(rollups_frame(spark, [rollup(60, mean=9.5)]), 2)
    assert [r.mean for r in store.rollups(RollupQuery(Resolution.MINUTE)).rows] == [0.0, 9.5, 2.0]
    assert [r.count for r in store.rollups(RollupQuery(Resolution.HOUR)).rows] == [180]
    frame = store.rollups_frame(spark, Resolution.MINUTE, at(60), at(180))
    assert sorted((row["mean"], row["version"]) for row in frame.collect()) == [(2.0, 1), (9.5, 2)]

    store.write_events(events_frame(spark, [event(0, "a"), event(86_400, "b")]), 3)
    store.write_events(events_frame(spark, [event(0, "a", status="retracted")]), 4)
    assert [e.event_id for e in store.events(EventQuery()).rows] == ["b"]
    assert store.last_version() == 4


def test_what_a_crashed_writer_left_is_removed(store: ParquetStore, spark: "SparkSession") -> None:
    staging = store.root / ".staging"
    dead, alive, elsewhere = (
        staging / f"{host}-{pid}-00000000"
        for host, pid in (
            (socket.gethostname(), _a_dead_pid()),
            (socket.gethostname(), os.getpid()),
            ("other", 1),
        )
    )
    for directory in (dead, alive, elsewhere):
        (directory / "_bucket=1").mkdir(parents=True)
        (directory / "_bucket=1" / "part.parquet").write_bytes(b"half")
    store.write_points(points_frame(spark, [point()]), 0)
    assert sorted(path.name for path in staging.iterdir()) == sorted([alive.name, elsewhere.name])
    assert count_points(store) == 1


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "file").write_text("in the way")
    store = ParquetStore(tmp_path / "file" / "store")
    with pytest.raises(StoreUnavailable, match="cannot write to the store at"):
        store.write_points(points_frame(spark, [point()]), 0)
    store.close()


def _a_dead_pid() -> int:
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid
