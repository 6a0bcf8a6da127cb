"""Rollups of one window, against the definition written out in plain Python."""

import math
import random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

import pyarrow as pa

from millstream.pipeline.job.rollups import window_rollups

NAMES = ("metric", "uuid", "hostname", "time_us", "value", "source_partition", "source_offset")
Row = tuple[str, str, str, int, float, int, int]


def computed(rows: list[Row]) -> set[tuple[Any, ...]]:
    points = pa.table({name: [row[number] for row in rows] for number, name in enumerate(NAMES)})
    names = ("metric", "level", "key", "hostname", "min", "max", "mean", "p95", "count")
    made = window_rollups(points)
    return set(zip(*(made[name].to_pylist() for name in names), strict=True))


def defined(rows: list[Row]) -> set[tuple[Any, ...]]:
    last = {(row[0], row[1], row[3]): row for row in sorted(rows, key=lambda row: row[5:])}.values()
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in last:
        groups.setdefault((row[0], "gpu", row[1]), []).append(row)
        groups.setdefault((row[0], "fleet", "fleet"), []).append(row)
        if row[2]:
            groups.setdefault((row[0], "host", row[2]), []).append(row)
    made = set()
    for (metric, level, key), members in groups.items():
        values = sorted(row[4] for row in members)
        place = (len(values) - 1) * 0.95
        low, high = values[math.floor(place)], values[math.ceil(place)]
        p95 = (
            low
            if place.is_integer()
            else (math.ceil(place) - place) * low + (place - math.floor(place)) * high
        )
        host = {"gpu": max(row[2] for row in members), "host": key, "fleet": ""}[level]
        mean = math.fsum(values) / len(values)
        made.add((metric, level, key, host, values[0], values[-1], mean, p95, len(values)))
    return made


@pytest.mark.parametrize("seed", range(5))
def test_rollups_are_what_they_are_defined_to_be_in_any_order(seed: int) -> None:
    dice = random.Random(seed)
    rows: list[Row] = [
        (dice.choice(["power", "heat"]), f"GPU-{dice.randrange(7)}", dice.choice(["", "a", "b", "zz"]),
         dice.randrange(60), dice.choice([-0.5, 0.1, 1e15, 7.0]), dice.randrange(2), offset)
        for offset in range(dice.choice([1, 5, 400]))
    ]  # fmt: skip
    expected = defined(rows)
    assert computed(rows) == expected
    dice.shuffle(rows)
    assert computed(rows) == expected
