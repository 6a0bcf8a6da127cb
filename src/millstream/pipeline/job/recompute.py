"""Bringing rollups and events up to date with the points: what the ledger has marked is computed again, whole.

Nothing is added to an old result. A window that was marked is read from the store and replaced, so late points,
repeated ones and restarts end in the same rows.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import groupby

from pyspark.sql import SparkSession

from millstream.pipeline.job.health.book import HealthBook
from millstream.pipeline.job.health.model import Run, Thresholds
from millstream.pipeline.job.health.publish import EventPublisher
from millstream.pipeline.job.health.signs import context, runs_of
from millstream.pipeline.job.health.watch import HealthWatch
from millstream.pipeline.job.ledger import Ledger, Marks
from millstream.pipeline.job.rollups import rollups_of
from millstream.pipeline.moments import (
    HOUR,
    MINUTE,
    MINUTES_PER_HOUR,
    hour_of,
    hour_start,
    minute_start,
)
from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.local_frames import local_frame
from millstream.pipeline.stores.rows import Resolution, Rollup
from millstream.pipeline.stores.tables import ROLLUPS

_HOURS_AT_ONCE = 24

OnProgress = Callable[[str, int, int], object]
"""Told what is done, how much of it, and of how much."""


def no_progress(what: str, done: int, total: int) -> None:
    del what, done, total


class Recomputation:
    """Not for several threads at once."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        ledger: Ledger,
        book: HealthBook,
        publisher: EventPublisher,
        thresholds: Thresholds,
        on_progress: OnProgress = no_progress,
    ) -> None:
        self._spark = spark
        self._store = store
        self._ledger = ledger
        self._book = book
        self._watch = HealthWatch(book, thresholds)
        self._publisher = publisher
        self._thresholds = thresholds
        self._on_progress = on_progress
        self._above_store: int | None = None

    def everything(self) -> None:
        """All that is marked, hours that are not over too: after this the store is complete."""
        self.minutes()
        self.hours(final_only=False)
        self.health()

    def minutes(self) -> None:
        marked = self._ledger.dirty().minutes
        done = 0
        for chunk in _chunks(marked, MINUTES_PER_HOUR):
            first, last = min(chunk), max(chunk)
            points = self._store.points_frame(
                self._spark, minute_start(first), minute_start(last) + MINUTE, copies=True
            )
            version = self._version()
            self._store.write_rollups(rollups_of(points, Resolution.MINUTE, sorted(chunk)), version)
            starts = {minute_start(minute) for minute in chunk}
            _retire_hosts(self._spark, self._store, Resolution.MINUTE, starts, version)
            self._ledger.clear(Marks({minute: marked[minute] for minute in chunk}, {}))
            done += len(chunk)
            self._on_progress("minutes", done, len(marked))

    def hours(self, *, final_only: bool) -> None:
        """Those that the watermark has passed, or all of them."""
        watermark = self._ledger.watermark
        marked = self._ledger.dirty().hours
        due = {
            hour: mark
            for hour, mark in marked.items()
            if not final_only or (watermark is not None and hour_start(hour + 1) <= watermark)
        }
        done = 0
        for chunk in _chunks(due, 1):
            points = self._store.points_frame(
                self._spark, hour_start(min(chunk)), hour_start(max(chunk) + 1), copies=True
            )
            version = self._version()
            self._store.write_rollups(rollups_of(points, Resolution.HOUR, sorted(chunk)), version)
            starts = {hour_start(hour) for hour in chunk}
            _retire_hosts(self._spark, self._store, Resolution.HOUR, starts, version)
            self._ledger.clear(Marks({}, {hour: due[hour] for hour in chunk}))
            done += len(chunk)
            self._on_progress("hours", done, len(due))

    def health(self) -> None:
        """Events of the hours whose rollups changed, and of all that time may have ended."""
        newest = self._ledger.newest
        if newest is None:
            return
        marked = self._ledger.dirty_health()
        reach = context(self._thresholds)
        affected = {
            hour
            for changed in marked
            for hour in (changed, *self._book.hours(changed + 1, changed + reach // HOUR))
        }
        done = 0
        # Without a changed hour there is one look all the same: time has gone on.
        for chunk in _chunks(affected, 1) if affected else iter([[]]):
            try:
                changed_events = self._watch.changes(self._runs(chunk, reach), newest)
                if changed_events:
                    self._publisher.publish(changed_events, self._version())
            except BaseException:
                self._watch.forget()
                raise
            self._book.save()
            self._ledger.clear_health(chunk)
            done += len(chunk)
            self._on_progress("health", done, len(affected))

    def _runs(self, hours: list[int], reach: timedelta) -> Mapping[int, Iterable[Run]]:
        by_hour: dict[int, list[Run]] = {hour: [] for hour in hours}
        if hours:
            start, end = hour_start(min(hours)) - reach, hour_start(max(hours) + 1)
            rollups = self._store.rollups_frame(self._spark, Resolution.MINUTE, start, end)
            for run in runs_of(rollups, hours, self._thresholds):
                by_hour[hour_of(run.first)].append(run)
        return by_hour

    def _version(self) -> int:
        if self._above_store is None:
            self._above_store = self._store.last_version() + 1
        return self._ledger.next_version(self._above_store)


def _retire_hosts(
    spark: SparkSession, store: Store, resolution: Resolution, starts: Collection[datetime], version: int
) -> None:
    """Empty the rollups of hosts that have lost their points: a point sent again may name another host than before.

    Whatever else is in a window when it is computed again was in it before. After the rollups of the windows that begin
    at `starts` were written with `version`; readers do not see empty ones.
    """
    older = store.host_rollups_before(version, resolution, min(starts), max(starts))
    gone = [_emptied(row) for row in older if row.window_start in starts]
    if gone:
        store.write_rollups(local_frame(spark, ROLLUPS.ddl, gone), version)


def _emptied(row: Rollup) -> tuple[object, ...]:
    return tuple(0 if name == "count" else getattr(row, name) for name in ROLLUPS.names)


def _chunks(windows: Iterable[int], per_hour: int) -> Iterator[list[int]]:
    """Windows of at most a day together: one read of the store each."""
    for _, group in groupby(sorted(windows), key=lambda window: window // (per_hour * _HOURS_AT_ONCE)):
        yield list(group)
