"""Rollups of hosts that have lost their points: a point sent again may name another host than before.

Whatever else is in a window when it is computed again was in it before. A host may be gone, and the rollups that it had
would stay. They are replaced by empty ones, which readers do not see.
"""

from collections.abc import Collection
from datetime import datetime

from pyspark.sql import SparkSession

from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.local_frames import local_frame
from millstream.pipeline.stores.rows import Resolution, Rollup
from millstream.pipeline.stores.tables import ROLLUPS


def retire_hosts(
    spark: SparkSession, store: Store, resolution: Resolution, starts: Collection[datetime], version: int
) -> None:
    """After the rollups of the windows that begin at `starts` were written with `version`."""
    older = store.host_rollups_before(version, resolution, min(starts), max(starts))
    gone = [_emptied(row) for row in older if row.window_start in starts]
    if gone:
        store.write_rollups(local_frame(spark, ROLLUPS.ddl, gone), version)


def _emptied(row: Rollup) -> tuple[object, ...]:
    return tuple(0 if name == "count" else getattr(row, name) for name in ROLLUPS.names)
