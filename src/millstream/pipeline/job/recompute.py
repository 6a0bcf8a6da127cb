"""Brings rollups and events up to date: computes the windows that the ledger has marked again from all their points.

Nothing is added to an old result. A marked window is read from the store and replaced, so late points, repeated points
and restarts lead to the same rows.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby

import msgspec
import orjson
from pyspark.sql import SparkSession

from millstream.client import ClientError, Producer, ProducerConfig
from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.health.events import Run
from millstream.pipeline.job.health.signs import context, runs_of
from millstream.pipeline.job.health.watch import HealthBook, HealthWatch
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.job.rollups import rollups_of
from millstream.pipeline.moments import HOUR, MINUTE, MINUTES_PER_HOUR, hour_of, hour_start, minute_start
from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.local_frames import local_frame
from millstream.pipeline.stores.rows import EVENTS, ROLLUPS, Event, Resolution

_HOURS_AT_ONCE = 24

OnProgress = Callable[[str, int, int], object]
"""Called with the work done, its amount, and the total."""


class EventPublisher:
    """Publishes changed events to the store and to the topic.

    Both get each change at least once: after a crash the same changes are found and sent again. The store is not
    affected by that; a reader of the topic takes the last message of an `event_id`.
    """

    def __init__(self, spark: SparkSession, store: Store, bootstrap: str, topic: str) -> None:
        self._spark = spark
        self._store = store
        self._topic = topic
        self._config = ProducerConfig(bootstrap_servers=bootstrap.split(","))
        self._producer: Producer | None = None

    def publish(self, events: Sequence[Event], version: int) -> None:
        rows = [msgspec.structs.astuple(event) for event in events]
        self._store.write_events(local_frame(self._spark, EVENTS.ddl, rows), version)
        if self._producer is None:
            self._producer = Producer(self._config)
        try:
            self._producer.send_batch(
                {"topic": self._topic, "key": event.uuid.encode(), "value": _message(event)}
                for event in events
            )
        except ClientError:
            # Some failures are fatal for a producer; the next attempt opens a new one.
            failed, self._producer = self._producer, None
            with contextlib.suppress(ClientError):
                failed.close()
            raise

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def _message(event: Event) -> bytes:
    """The event as a message of the topic: JSON with the names of the query API."""
    document = msgspec.structs.asdict(event) | {"evidence": orjson.loads(event.evidence)}
    return msgspec.json.encode(document)


class Recomputation:
    """Not thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        ledger: Ledger,
        book: HealthBook,
        publisher: EventPublisher,
        settings: PipelineSettings,
        on_progress: OnProgress = lambda *_: None,
    ) -> None:
        self._spark = spark
        self._store = store
        self._ledger = ledger
        self._book = book
        self._watch = HealthWatch(book, settings)
        self._publisher = publisher
        self._settings = settings
        self._on_progress = on_progress
        self._above_store: int | None = None

    def everything(self) -> None:
        """Compute everything marked, including hours that are not over: after this the store is complete."""
        self.minutes()
        self.hours(final_only=False)
        self.health()

    def minutes(self) -> None:
        marked = self._ledger.dirty_minutes()
        for done, chunk in _chunks(marked, MINUTES_PER_HOUR):
            self._compute(Resolution.MINUTE, chunk)
            self._ledger.clear_minutes({minute: marked[minute] for minute in chunk})
            self._on_progress("minutes", done, len(marked))

    def hours(self, *, final_only: bool) -> None:
        """Compute the marked hours: with `final_only` those before the watermark, else all."""
        watermark = self._ledger.watermark
        due = {
            hour: mark
            for hour, mark in self._ledger.dirty_hours().items()
            if not final_only or (watermark is not None and hour_start(hour + 1) <= watermark)
        }
        for done, chunk in _chunks(due, 1):
            self._compute(Resolution.HOUR, chunk)
            self._ledger.clear_hours({hour: due[hour] for hour in chunk})
            self._on_progress("hours", done, len(due))

    def _compute(self, resolution: Resolution, windows: list[int]) -> None:
        start_of, width = (minute_start, MINUTE) if resolution is Resolution.MINUTE else (hour_start, HOUR)
        starts = [start_of(window) for window in windows]
        points = self._store.points_frame(self._spark, starts[0], starts[-1] + width)
        version = self._version()
        self._store.write_rollups(rollups_of(points, resolution, windows), version)
        # A repeated point may name another host than before, which can leave a host without points in this window: set
        # the count of its rollup to 0, which hides it from readers. No other rollup of a window can lose all points.
        older = self._store.host_rollups_before(version, resolution, starts[0], starts[-1])
        gone = [msgspec.structs.replace(row, count=0) for row in older if row.window_start in set(starts)]
        if gone:
            rows = [msgspec.structs.astuple(row) for row in gone]
            self._store.write_rollups(local_frame(self._spark, ROLLUPS.ddl, rows), version)

    def health(self) -> None:
        """Compute the events of hours whose rollups changed, and of events that may have ended since."""
        newest = self._ledger.newest
        if newest is None:
            return
        reach, dirty = context(self._settings), self._ledger.dirty_health()
        affected = {
            hour
            for changed in dirty
            for hour in (changed, *self._book.hours(changed + 1, changed + reach // HOUR))
        }
        # Even without a changed hour check once, because time has passed.
        for done, chunk in _chunks(affected, 1) if affected else [(0, list[int]())]:
            try:
                changed_events = self._watch.changes(self._runs(chunk, reach), newest)
                if changed_events:
                    self._publisher.publish(changed_events, self._version())
            except BaseException:
                self._watch.forget()
                raise
            self._book.save()
            # Hours that depend on the last hours of this chunk may be in the next one, so those marks stay until then.
            self._ledger.clear_health(hour for hour in dirty if hour + reach // HOUR <= chunk[-1])
            self._on_progress("health", done, len(affected))
        self._ledger.clear_health(dirty)

    def _runs(self, hours: list[int], reach: timedelta) -> Mapping[int, Iterable[Run]]:
        by_hour: dict[int, list[Run]] = {hour: [] for hour in hours}
        if hours:
            start, end = hour_start(hours[0]) - reach, hour_start(hours[-1] + 1)
            rollups = self._store.rollups_frame(self._spark, Resolution.MINUTE, start, end)
            for run in runs_of(rollups, hours, self._settings):
                by_hour[hour_of(run.first)].append(run)
        return by_hour

    def _version(self) -> int:
        if self._above_store is None:
            self._above_store = self._store.last_version() + 1
        return self._ledger.next_version(self._above_store)


def _chunks(windows: Iterable[int], per_hour: int) -> Iterator[tuple[int, list[int]]]:
    """Groups windows into chunks of at most a day, each one read of the store; yields the total so far with each."""
    done = 0
    for _, group in groupby(sorted(windows), key=lambda window: window // (per_hour * _HOURS_AT_ONCE)):
        chunk = list(group)
        done += len(chunk)
        yield done, chunk
