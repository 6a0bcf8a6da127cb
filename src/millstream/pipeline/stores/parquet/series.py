"""The newest point and the count of every GPU and metric, without reading all points.

A merge writes them beside the merged file; for the few files not merged yet they are computed from the points.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from millstream.pipeline.stores.parquet.engine import SCAN, Engine, Values
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


class PointCounts:
    """Points of each metric, each identity once. What was counted in a bucket holds until its files change."""

    def __init__(self, root: Path, engine: Engine) -> None:
        self._root = root
        self._engine = engine
        self._counted: dict[Path, tuple[LiveFiles, dict[str, int]]] = {}

    def per_metric(self, files: Sequence[LiveFiles]) -> dict[str, int]:
        merged = [path for each in files if each.is_merged for path in each.series_paths]
        total: Counter[str] = Counter()
        if merged:
            sql = f"SELECT metric, sum(points)::BIGINT FROM {SCAN} GROUP BY metric"  # noqa: S608
            total.update(dict(self._engine.rows(sql, [merged])))
        mixed = [each for each in files if each.files and not each.is_merged]
        for _, counts in self._count(mixed).values():
            total.update(counts)
        return total

    def _count(self, mixed: Sequence[LiveFiles]) -> dict[Path, tuple[LiveFiles, dict[str, int]]]:
        known = {each.directory: self._counted.get(each.directory) for each in mixed}
        fresh = {path: entry for path, entry in known.items() if entry is not None}
        new = [each for each in mixed if each.directory not in fresh or fresh[each.directory][0] != each]
        counts: dict[Path, dict[str, int]] = {each.directory: {} for each in new}
        if new:
            width = POINTS_ROOM.bucket_us
            sql = f"""
                SELECT (time_us - ((time_us % {width}) + {width}) % {width}) // {width} AS bucket, metric, count(*)
                FROM (SELECT DISTINCT uuid, metric, epoch_us(time) AS time_us FROM {SCAN}) GROUP BY bucket, metric
            """  # noqa: S608
            for bucket, metric, points in self._engine.rows(
                sql, [[path for each in new for path in each.paths]]
            ):
                counts[POINTS_ROOM.bucket_dir(self._root, bucket)][metric] = points
        # Buckets that are merged by now are forgotten here; other threads may do the same at the same time.
        self._counted = counted = fresh | {each.directory: (each, counts[each.directory]) for each in new}
        return counted
