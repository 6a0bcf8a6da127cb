"""Rollups of windows from raw points: min, max, mean, p95 and count, per GPU, per host and of the fleet.

Spark brings all points of a metric in a window together; an Arrow function computes all rollups of them at once. The
same points give the same bits in whatever order they come: sums are rounded once, percentiles are exact.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.moments import MINUTE_US, MINUTES_PER_HOUR
from millstream.pipeline.stores.local_frames import arrow_schema, one_of
from millstream.pipeline.stores.rows import Level, Resolution
from millstream.pipeline.stores.tables import ROLLUPS

_WIDTH_US = {Resolution.MINUTE: MINUTE_US, Resolution.HOUR: MINUTE_US * MINUTES_PER_HOUR}
FLEET_KEY = "fleet"
_P95 = 0.95

Codes = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def rollups_of(points: DataFrame, resolution: Resolution, windows: Iterable[int]) -> DataFrame:
    """The rollups of those windows (counted from the epoch) that hold points; the frame may hold others too.

    Of points with one identity the last in the log counts.
    """
    width_us, schema = _WIDTH_US[resolution], arrow_schema(ROLLUPS.ddl)
    window = f.floor(f.unix_micros("time") / f.lit(width_us)).cast("bigint")
    rows = points.select(
        window.alias("window"), "metric", "uuid", "hostname", f.unix_micros("time").alias("time_us"), "value",
        "source_partition", "source_offset",
    ).where(one_of(f.col("window"), windows))  # fmt: skip

    def computed(key: tuple[Any, ...], points_of_one: pa.Table) -> pa.Table:
        number, metric = (each.as_py() for each in key)
        parts = list(window_rollups(points_of_one))
        rows_made = sum(len(part["count"]) for part in parts)
        columns = {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
        columns |= {
            "resolution": pa.repeat(str(resolution), rows_made),
            "metric": pa.repeat(metric, rows_made),
            "window_start": pa.repeat(
                pa.scalar(number * width_us, schema.field("window_start").type), rows_made
            ),
        }
        return pa.table([columns[name] for name in schema.names], schema=schema)

    return rows.groupBy("window", "metric").applyInArrow(computed, ROLLUPS.ddl)


def window_rollups(points: pa.Table) -> Iterator[dict[str, pa.Array]]:
    """Columns of the rollups of one metric in one window: of each GPU, of each host, and of all."""
    uuids, hosts = (_encoded(points[name]) for name in ("uuid", "hostname"))
    uuid, host = (each.indices.to_numpy().astype(np.int64) for each in (uuids, hosts))
    time, partition, offset = (
        points[name].to_numpy() for name in ("time_us", "source_partition", "source_offset")
    )
    order = np.lexsort((offset, partition, time, uuid))
    newest = np.append((np.diff(uuid[order]) != 0) | (np.diff(time[order]) != 0), True)
    order = order[newest]
    # Without the sign of zero, which would depend on the order of points.
    uuid, host, value = uuid[order], host[order], points["value"].to_numpy()[order] + 0.0
    # A GPU has one row whatever hosts its points name, and points without a host count for no host.
    gpu, statistics = _statistics(uuid, value)
    by_name = np.argsort(np.argsort(hosts.dictionary.to_numpy(zero_copy_only=False)))
    rank = np.maximum.reduceat(by_name[host], np.flatnonzero(np.append(True, np.diff(uuid) != 0)))
    last_host = pc.take(hosts.dictionary, pa.array(np.argsort(by_name)[rank]))
    yield _level(Level.GPU, pc.take(uuids.dictionary, pa.array(gpu)), last_host, statistics)
    named = np.flatnonzero(~pc.equal(hosts.dictionary, "").to_numpy(zero_copy_only=False)[host])
    group, statistics = _statistics(host[named], value[named])
    names = pc.take(hosts.dictionary, pa.array(group))
    yield _level(Level.HOST, names, names, statistics)
    _, statistics = _statistics(np.zeros_like(uuid), value)
    yield _level(Level.FLEET, pa.array([FLEET_KEY]), pa.array([""]), statistics)


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    encoded: pa.DictionaryArray = pc.dictionary_encode(column.combine_chunks())
    return encoded


def _statistics(group: Codes, value: Values) -> tuple[Codes, dict[str, pa.Array]]:
    """The groups in order, and the statistics of each."""
    order = np.lexsort((value, group))
    group, value = group[order], value[order]
    starts = np.flatnonzero(np.append(True, np.diff(group) != 0)) if len(group) else np.empty(0, np.int64)
    counts = np.diff(np.append(starts, len(group)))
    values, bounds = value.tolist(), [*starts.tolist(), len(value)]
    sums = [math.fsum(values[first:end]) for first, end in itertools.pairwise(bounds)]
    place = (counts - 1) * _P95
    below, above = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
    low, high = value[starts + below], value[starts + above]
    between = (above - place) * low + (place - below) * high
    return group[starts], {
        "min": pa.array(value[starts]),
        "max": pa.array(value[starts + counts - 1]),
        "mean": pa.array(np.array(sums, np.float64) / counts),
        "p95": pa.array(np.where(below == above, low, between)),
        "count": pa.array(counts, pa.int64()),
    }


def _level(
    level: Level, key: pa.Array, hostname: pa.Array, statistics: dict[str, pa.Array]
) -> dict[str, pa.Array]:
    return {"level": pa.repeat(str(level), len(key)), "key": key, "hostname": hostname, **statistics}
