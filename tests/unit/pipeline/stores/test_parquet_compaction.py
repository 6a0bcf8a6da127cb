"""Merging, replacing and expiring files: what readers see never changes, and what is not needed goes."""

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millstream.pipeline.stores.base import (
    Compaction,
    EventQuery,
    GpuQuery,
    LatestQuery,
    RollupQuery,
    TelemetryQuery,
)
from millstream.pipeline.stores.parquet.compaction import Upkeep
from millstream.pipeline.stores.parquet.layout import (
    EVENTS_ROOM,
    MINUTES_ROOM,
    POINTS_ROOM,
    covers_path,
    live_files,
)
from millstream.pipeline.stores.parquet.store import ParquetStore
from millstream.pipeline.stores.rows import Resolution
from support.store_rows import TEMP, UTIL, at, count_points, event, point, put, rollup

NOW = timedelta(0)
AT_ONCE = Upkeep(fan_in=2, quiet_after=timedelta(days=1), grace=NOW)
KEEP = Upkeep(fan_in=2, quiet_after=timedelta(days=1), grace=timedelta(days=1))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def open_with(root: Path) -> Iterator[object]:
    opened: list[ParquetStore] = []

    def open_with(upkeep: Upkeep) -> ParquetStore:
        opened.append(ParquetStore(root, upkeep))
        return opened[-1]

    yield open_with
    for store in opened:
        store.close()


def hour(root: Path) -> Path:
    return POINTS_ROOM.bucket_dir(root, POINTS_ROOM.bucket_of(at(0)))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def everything(store: ParquetStore) -> tuple[object, ...]:
    return (
        count_points(store), store.gpus(GpuQuery()), store.hosts(), store.metrics(), store.latest(LatestQuery()),
        *(store.telemetry(TelemetryQuery(uuid, at(-1e5), at(1e5))) for uuid in ("GPU-1", "GPU-2")),
        *(store.rollups(RollupQuery(resolution)) for resolution in Resolution),
        store.events(EventQuery()), store.last_version(),
    )  # fmt: skip


def fill(root: Path, version: int) -> None:
    some = [point(600 * i, f"GPU-{g}", metric, value=version + i, source_offset=10 * version + i)
            for i in range(8) for g in (1, 2) for metric in (UTIL, TEMP)]  # fmt: skip
    put(root, some, version)
    put(root, [rollup(60 * i, mean=version) for i in range(10)], version, MINUTES_ROOM)
    put(root, [event(i, f"e{i}", message=str(version)) for i in range(5)], version, EVENTS_ROOM)


@pytest.mark.parametrize("upkeep", [AT_ONCE, KEEP])
def test_merging_changes_nothing_that_a_reader_sees(root: Path, open_with, upkeep: Upkeep) -> None:
    store = open_with(upkeep)
    for version in range(4):
        fill(root, version)
    before = everything(store)
    done = store.compact()
    assert (done.merged_files, done.written_files) == (16, 4)
    assert everything(store) == before
    fill(root, 4)
    after = everything(store)
    assert after != before
    store.compact()
    assert everything(store) == after
    assert count_points(store) == 32


def test_replaced_files_stay_for_the_grace_time(root: Path, open_with) -> None:
    put(root, [point(0)], 0)
    put(root, [point(1)], 1)
    open_with(KEEP).compact()
    assert [name[0] for name in names(hour(root)) if name.endswith(".parquet")] == ["b", "b", "c"]
    assert len(live_files(hour(root)).files) == 1
    assert open_with(AT_ONCE).compact() == Compaction(deleted_files=2)
    assert [name[0] for name in names(hour(root)) if name.endswith(".parquet")] == ["c"]


def test_files_climb_levels(root: Path, open_with) -> None:
    store = open_with(AT_ONCE)
    for version in range(16):
        put(root, [point(version)], version)
        store.compact()
        assert count_points(store) == version + 1
    files = live_files(hour(root)).files
    assert len(files) <= 4
    assert max(file.level for file in files) >= 3
    assert (min(file.first_version for file in files), max(file.last_version for file in files)) == (0, 15)


def test_large_batches_are_merged_however_few(root: Path, open_with) -> None:
    put(root, [point(0)], 0)
    store = open_with(Upkeep(fan_in=100, fan_in_bytes=10_000_000))
    assert store.compact() == Compaction()
    store = open_with(Upkeep(fan_in=100, fan_in_bytes=100))
    assert store.compact().merged_files == 1
    put(root, [point(1)], 1)
    assert store.compact().merged_files == 1, "what is merged already stays as it is"
    assert count_points(store) == 2


def test_a_quiet_hour_becomes_one_file(root: Path, open_with) -> None:
    store = open_with(Upkeep(fan_in=100, quiet_after=NOW, grace=NOW))
    for version in range(3):
        put(root, [point(version), point(0)], version)
    assert store.compact().merged_files == 3
    assert live_files(hour(root)).is_merged
    assert store.compact().merged_files == 0
    assert store.compact() == Compaction(), "nothing left to do"
    assert count_points(store) == 3


def test_a_merge_that_was_cut_off_leaves_no_trace(root: Path, open_with) -> None:
    put(root, [point(0)], 0)
    put(root, [point(1)], 1)
    long_ago = time.time() - 3600
    left = [hour(root) / name for name in (".c000000000000-000000000001-1-aa.parquet.tmp",
                                           "c000000000000-000000000001-1-aa.covers",
                                           "c000000000000-000000000001-1-aa.series")]  # fmt: skip
    for path in left:
        path.write_bytes(b'["b"]')
        os.utime(path, (long_ago, long_ago))
    store = open_with(AT_ONCE)
    assert count_points(store) == 2
    store.compact()
    assert not any(path.exists() for path in left)
    assert count_points(store) == 2


def test_two_merges_at_once_count_every_point_once(root: Path, open_with) -> None:
    for version in range(4):
        put(root, [point(i, source_offset=i) for i in range(10)], version)
    store = open_with(KEEP)
    from millstream.pipeline.stores.parquet.compaction import merge

    live = live_files(hour(root))
    for _ in range(2):
        merge(store._engine, POINTS_ROOM, live, live.files)
    assert len(live_files(hour(root)).files) == 2
    assert count_points(store) == 10
    assert len(store.telemetry(TelemetryQuery("GPU-1", at(0), at(100))).rows) == 10
    assert store.gpus(GpuQuery()).rows[0].last_seen == at(9)


def test_a_version_that_is_used_again_loses_nothing(root: Path, open_with) -> None:
    store = open_with(AT_ONCE)
    for version in (0, 1):
        put(root, [point(version)], version)
    store.compact()
    for version in (0, 1):
        put(root, [point(100 + version)], version)
    assert count_points(store) == 4, "a job without its checkpoint counts from 0 again"
    store.compact()
    assert count_points(store) == 4


def test_a_merged_file_without_its_list_does_not_hide_anything(root: Path, open_with) -> None:
    put(root, [point(0)], 0)
    put(root, [point(1)], 1)
    store = open_with(KEEP)
    store.compact()
    (merged,) = (hour(root) / file.text for file in live_files(hour(root)).files)
    covers_path(merged).rename(covers_path(merged).with_suffix(".elsewhere"))
    # The list is remembered by its path, as it never changes; another process would read it afresh.
    other = merged.with_name(merged.name.replace(merged.stem[-8:], "00000000"))
    merged.rename(other)
    assert store.telemetry(TelemetryQuery("GPU-1", at(0), at(10))).rows[0].time == at(0)


def test_old_hours_expire(root: Path, open_with) -> None:
    now = (datetime.now(UTC) - at(0)).total_seconds()
    put(root, [point(0), point(now - 7200), point(now)])
    put(root, [rollup(0), rollup(now)], room=MINUTES_ROOM)
    store = open_with(Upkeep(points_retention=timedelta(hours=1)))
    assert store.compact().expired_files == 2
    assert count_points(store) == 1
    assert len(store.rollups(RollupQuery(Resolution.MINUTE)).rows) == 2, (
        "rollups have a retention of their own"
    )
    assert not hour(root).parent.exists()
    store = open_with(Upkeep(rollups_retention=timedelta(hours=1)))
    store.compact()
    assert len(store.rollups(RollupQuery(Resolution.MINUTE)).rows) == 1


def test_readers_see_every_point_while_files_are_merged_and_deleted(root: Path, open_with) -> None:
    store, reader = open_with(AT_ONCE), open_with(KEEP)
    put(root, [point(0)], 0)
    stop, failures = threading.Event(), []
    written = [1]

    def read() -> None:
        while not stop.is_set():
            least = written[0]
            seen = len(reader.telemetry(TelemetryQuery("GPU-1", at(0), at(1000))).rows)
            if seen < least or count_points(reader) < least:
                failures.append((least, seen))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for version in range(1, 40):
            put(root, [point(version), point(version - 1)], version)
            written[0] = version + 1
            store.compact()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
