"""Rollups of windows from raw points: min, max, mean, p95 and count, per GPU, per host and of the fleet.

Spark groups the points by window; an Arrow function computes all rollups of a group at once. The same points give the
same bits in any order: sums are rounded only once, and percentiles are exact.
"""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.moments import MINUTE_US, MINUTES_PER_HOUR
from millstream.pipeline.stores.local_frames import arrow_schema, one_of
from millstream.pipeline.stores.rows import ROLLUPS, Level, Resolution

_WIDTH_US = {Resolution.MINUTE: MINUTE_US, Resolution.HOUR: MINUTE_US * MINUTES_PER_HOUR}
FLEET_KEY = "fleet"
_P95 = 0.95

Codes = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def rollups_of(points: DataFrame, resolution: Resolution, windows: Iterable[int]) -> DataFrame:
    """The rollups of those `windows` (counted from the epoch) that hold points; `points` may cover other windows too.

    Of points with the same identity, the last in the log counts.
    """
    width_us, schema = _WIDTH_US[resolution], arrow_schema(ROLLUPS.ddl)
    window = f.floor(f.unix_micros("time") / f.lit(width_us)).cast("bigint")
    rows = points.select(
        window.alias("window"), "metric", "uuid", "hostname", f.unix_micros("time").alias("time_us"), "value",
        "source_partition", "source_offset",
    ).where(one_of(f.col("window"), windows))  # fmt: skip

    def computed(key: tuple[Any, ...], together: pa.Table) -> pa.Table:
        made = window_rollups(together)
        start = pa.scalar(key[0].as_py() * width_us, schema.field("window_start").type)
        made |= {
            "resolution": pa.repeat(str(resolution), len(made["count"])),
            "window_start": pa.repeat(start, len(made["count"])),
        }
        return pa.table([made[name] for name in schema.names], schema=schema)

    # Grouping by the window alone is cheap, but an hour may have too many points for one worker; a minute does not.
    by = ("window",) if resolution is Resolution.MINUTE else ("window", "metric")
    return rows.groupBy(*by).applyInArrow(computed, ROLLUPS.ddl)


def window_rollups(points: pa.Table) -> dict[str, pa.Array]:
    """The rollups of one window as columns: for each metric of each GPU, of each host, and of the fleet."""
    metrics, uuids, hosts = (_encoded(points[name]) for name in ("metric", "uuid", "hostname"))
    metric, uuid, host = (each.indices.to_numpy().astype(np.int64) for each in (metrics, uuids, hosts))
    series = metric * len(uuids.dictionary) + uuid
    time, partition, offset = (
        points[name].to_numpy() for name in ("time_us", "source_partition", "source_offset")
    )
    order = np.lexsort((offset, partition, time, series))
    newest = np.append((np.diff(series[order]) != 0) | (np.diff(time[order]) != 0), True)
    order = order[newest]
    # Adding 0.0 removes the sign of -0.0, on which the result could depend by the order of points.
    value = points["value"].to_numpy()[order] + 0.0
    metric, series, host = metric[order], series[order], host[order]
    # A GPU has one row even if its points name several hosts; points without a host count for no host.
    group, gpus = _statistics(series, value)
    metric_of, gpu = np.divmod(group, len(uuids.dictionary))
    by_name = np.argsort(np.argsort(hosts.dictionary.to_numpy(zero_copy_only=False)))
    rank = np.maximum.reduceat(by_name[host], _starts(series))
    gpus |= {
        "level": pa.repeat(str(Level.GPU), len(group)), "metric": _taken(metrics, metric_of),
        "key": _taken(uuids, gpu), "hostname": _taken(hosts, np.argsort(by_name)[rank]),
    }  # fmt: skip
    named = np.flatnonzero(~pc.equal(hosts.dictionary, "").to_numpy(zero_copy_only=False)[host])
    group, of_hosts = _statistics((metric * len(hosts.dictionary) + host)[named], value[named])
    metric_of, host_of = np.divmod(group, len(hosts.dictionary))
    names = _taken(hosts, host_of)
    of_hosts |= {
        "level": pa.repeat(str(Level.HOST), len(group)), "metric": _taken(metrics, metric_of),
        "key": names, "hostname": names,
    }  # fmt: skip
    group, fleet = _statistics(metric, value)
    fleet |= {
        "level": pa.repeat(str(Level.FLEET), len(group)), "metric": _taken(metrics, group),
        "key": pa.repeat(FLEET_KEY, len(group)), "hostname": pa.repeat("", len(group)),
    }  # fmt: skip
    return {name: pa.concat_arrays([part[name] for part in (gpus, of_hosts, fleet)]) for name in gpus}


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    encoded: pa.DictionaryArray = pc.dictionary_encode(column.combine_chunks())
    return encoded


def _taken(encoded: pa.DictionaryArray, codes: Codes) -> pa.Array:
    return pc.take(encoded.dictionary, pa.array(codes))


def _starts(group: Codes) -> Codes:
    """The starts of adjacent groups."""
    return np.flatnonzero(np.append(True, np.diff(group) != 0)) if len(group) else np.empty(0, np.int64)


def _statistics(group: Codes, value: Values) -> tuple[Codes, dict[str, pa.Array]]:
    """The groups in order, and the statistics of each."""
    order = np.lexsort((value, group))
    group, value = group[order], value[order]
    starts = _starts(group)
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
