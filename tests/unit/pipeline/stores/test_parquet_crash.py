"""A store whose writer is killed while it writes and merges: nothing in place is lost, nothing counts twice."""

import os
import random
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from millstream.pipeline.stores.base import TelemetryQuery
from millstream.pipeline.stores.parquet.compaction import Upkeep
from millstream.pipeline.stores.parquet.store import ParquetStore
from support.store_rows import at, count_points

WRITER = """
import itertools, sys
from datetime import timedelta
from pathlib import Path
from millstream.pipeline.stores.parquet.compaction import Upkeep
from millstream.pipeline.files import move_into_place
from millstream.pipeline.stores.parquet.store import ParquetStore
from support.store_rows import point, put

root, first = Path(sys.argv[1]), int(sys.argv[2])
store = ParquetStore(root, Upkeep(fan_in=2, quiet_after=timedelta(days=1), grace=timedelta(0)))
for version in itertools.count(first):
    # As Spark's batches: written elsewhere, renamed into place.
    (staged,) = put(root / ".elsewhere", [point(version), point(max(0, version - 1))], version)
    move_into_place([(staged, root / staged.relative_to(root / ".elsewhere"))])
    print(version, flush=True)
    store.compact()
"""
UPKEEP = Upkeep(fan_in=2, quiet_after=timedelta(0), grace=timedelta(0))


def test_every_point_survives_kills(tmp_path: Path) -> None:
    root, written = tmp_path / "store", -1
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    dice = random.Random(3)
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), str(written + 1)],
            stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        assert writer.stdout is not None
        for _ in range(dice.randrange(5, 25)):
            written = int(writer.stdout.readline())
        time.sleep(dice.random() * 0.02)
        writer.kill()
        written = max([written, *map(int, writer.communicate()[0].split())])
        store = ParquetStore(root, UPKEEP)
        seen = [
            point.time
            for point in store.telemetry(TelemetryQuery("GPU-1", at(0), at(3000), limit=10_000)).rows
        ]
        # The last batch may be in place although nobody was told.
        assert seen in ([at(i) for i in range(written + 1)], [at(i) for i in range(written + 2)])
        assert count_points(store) == len(seen)
        store.close()
    store = ParquetStore(root, UPKEEP)
    store.compact()
    assert count_points(store) == len(seen)
    store.close()
