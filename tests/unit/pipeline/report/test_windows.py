"""Which resolution is read for which time."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from millstream.pipeline.report.windows import Stretch, plan, read
from millstream.pipeline.stores.parquet.layout import HOURS_ROOM, MINUTES_ROOM
from millstream.pipeline.stores.parquet.store import ParquetStore
from millstream.pipeline.stores.rows import Level, Resolution
from support.store_rows import UTIL, at, put, rollup

HOUR_S = 3600


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ParquetStore]:
    made = ParquetStore(tmp_path / "store")
    yield made
    made.close()


def put_hours(store: ParquetStore, *hours: int) -> None:
    rows = [
        rollup(HOUR_S * hour, resolution="1h", level=level, key=key)
        for hour in hours
        for level, key in (("fleet", "fleet"), ("gpu", "GPU-1"))
    ]
    put(store.root, rows, room=HOURS_ROOM)


def test_few_rows_are_read_as_minutes(store: ParquetStore) -> None:
    put_hours(store, 0, 1, 2)
    assert plan(store, at(0), at(3 * HOUR_S), gpus=2) == [Stretch(Resolution.MINUTE, at(0), at(3 * HOUR_S))]


def test_many_rows_are_read_as_hours_where_the_store_has_whole_ones(store: ParquetStore) -> None:
    put_hours(store, 0, 1, 2, 4, 5)
    minute, hour = Resolution.MINUTE, Resolution.HOUR
    assert plan(store, at(600), at(5.5 * HOUR_S), gpus=2, most_rows=100) == [
        Stretch(minute, at(600), at(HOUR_S)),
        Stretch(hour, at(HOUR_S), at(3 * HOUR_S)),
        Stretch(minute, at(3 * HOUR_S), at(4 * HOUR_S)),
        Stretch(hour, at(4 * HOUR_S), at(5 * HOUR_S)),
        Stretch(minute, at(5 * HOUR_S), at(5.5 * HOUR_S)),
    ]


def test_without_hours_everything_is_read_as_minutes(store: ParquetStore) -> None:
    whole = [Stretch(Resolution.MINUTE, at(0), at(3 * HOUR_S))]
    assert plan(store, at(0), at(3 * HOUR_S), gpus=2, most_rows=1) == whole


def test_a_window_is_read_in_one_stretch_only(store: ParquetStore) -> None:
    put_hours(store, 0, 1)
    put(store.root, [rollup(60 * minute) for minute in range(180)], room=MINUTES_ROOM)
    stretches = [
        Stretch(Resolution.HOUR, at(0), at(HOUR_S)),
        Stretch(Resolution.MINUTE, at(HOUR_S), at(HOUR_S) + timedelta(minutes=5)),
    ]
    rows = list(read(store, stretches, level=Level.GPU, metric=UTIL))
    assert [row.resolution.value for row in rows] == ["1h"] + ["1m"] * 5
    assert rows[-1].window_start == at(HOUR_S + 240)
