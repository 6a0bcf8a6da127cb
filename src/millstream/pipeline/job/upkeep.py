"""The thread beside the micro-batches: rollups of changed windows, events, and the store's own upkeep."""

import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from millstream.pipeline.job.recompute import Recomputation
from millstream.pipeline.stores.base import Store

POOL = "upkeep"
# Events may come a little later than rollups; finding them reads two hours of rollups.
_HEALTH_EVERY_ROUNDS = 3
_COMPACT_EVERY_S = 60.0
_REST = 2.0
_LONGEST_BACKOFF_S = 30.0

OnFailure = Callable[[Exception, float], object]
"""Told what failed and in how many seconds it is tried again."""


class Upkeep:
    def __init__(
        self,
        spark: SparkSession,
        recomputation: Recomputation,
        store: Store,
        every_s: float,
        on_round: Callable[[], object],
        on_failure: OnFailure,
    ) -> None:
        self._spark = spark
        self._recomputation = recomputation
        self._store = store
        self._every_s = every_s
        self._on_round = on_round
        self._on_failure = on_failure
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-upkeep", daemon=True)
        self._rounds = 0
        self._compacted_at = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the round that is under way has ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        # A pool of its own, so that a long computation leaves room for micro-batches.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        wait_s = self._every_s
        while not self._stop.wait(wait_s):
            try:
                began = time.monotonic()
                self._round()
                # Micro-batches come first: computing again never takes more than a third of the time.
                wait_s = max(self._every_s, _REST * (time.monotonic() - began))
            except Exception as error:  # noqa: BLE001 - whatever failed, the marks are still there for the next round
                wait_s = min(max(2 * wait_s, 1.0), _LONGEST_BACKOFF_S)
                self._on_failure(error, wait_s)

    def _round(self) -> None:
        self._recomputation.minutes()
        self._recomputation.hours(final_only=True)
        self._rounds += 1
        if self._rounds % _HEALTH_EVERY_ROUNDS == 1:
            self._recomputation.health()
        if time.monotonic() - self._compacted_at > _COMPACT_EVERY_S:
            self._store.compact()
            self._compacted_at = time.monotonic()
        self._on_round()
