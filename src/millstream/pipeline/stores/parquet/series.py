"""The newest point and the count of every GPU and metric, without reading all points.

A merge writes them beside the merged file; for the few files not merged yet they are computed from the points.
"""

from collections.abc import Sequence

from millstream.pipeline.stores.parquet.engine import SCAN, Engine, Values, newest_rows
from millstream.pipeline.stores.parquet.layout import POINTS_ROOM
from millstream.pipeline.stores.parquet.live import LiveFiles

COLUMNS = "uuid, metric, time, value, gpu_id, device, model_name, hostname, source_partition, source_offset"
ORDER = "(time, source_partition, source_offset)"

SUMMARY = f"""
    SELECT unnest(arg_max(point, {ORDER})), count(*) AS points
    FROM (SELECT {COLUMNS} FROM points) AS point GROUP BY uuid, metric ORDER BY uuid, metric
"""  # noqa: S608
"""Of `points`, in which each identity occurs once."""


def newest_points(
    files: Sequence[LiveFiles], conditions: Sequence[str]
) -> tuple[str, list[list[str]]] | None:
    """SQL, and its lists of files, for a superset of the newest points; None when there are no files.

    Each element of the result's second part is the list of paths for one scan; the conditions' values follow each.
    """
    summarised = [path for each in files for path in each.series_paths]
    batches = [path for each in files for path in each.batch_paths]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    scan = f"SELECT {COLUMNS} FROM {SCAN} {where}"  # noqa: S608
    paths = [group for group in (summarised, batches) if group]
    if not paths:
        return None
    return " UNION ALL ".join([scan] * len(paths)), paths


def newest_per(
    engine: Engine,
    files: Sequence[LiveFiles],
    group: str,
    columns: str,
    conditions: Sequence[str] = (),
    values: Values = (),
) -> list[tuple[object, ...]]:
    """`columns` of the newest point of every `group`, in the group's order."""
    source = newest_points(files, conditions)
    if source is None:
        return []
    scans, paths = source
    sql = f"""
        SELECT {columns} FROM (
            SELECT unnest(arg_max(point, {ORDER})) FROM ({scans}) AS point GROUP BY {group}
        ) ORDER BY {group}
    """  # noqa: S608
    return engine.rows(sql, [value for group_paths in paths for value in (group_paths, *values)])


def counts_per_metric(engine: Engine, files: Sequence[LiveFiles]) -> dict[str, int]:
    """Points of each metric, each identity once."""
    merged = [path for each in files if each.is_merged for path in each.series_paths]
    mixed = [path for each in files if not each.is_merged for path in each.paths]
    counts: dict[str, int] = {}
    distinct = newest_rows(POINTS_ROOM, "metric", ())
    for sql, paths in (
        (f"SELECT metric, sum(points)::BIGINT FROM {SCAN} GROUP BY metric", merged),  # noqa: S608
        (f"SELECT metric, count(*) FROM ({distinct}) GROUP BY metric", mixed),  # noqa: S608
    ):
        if paths:
            for metric, points in engine.rows(sql, [paths]):
                counts[metric] = counts.get(metric, 0) + points
    return counts
