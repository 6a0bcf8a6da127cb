"""Bringing rollups and events up to date with the points: what the ledger has marked is computed again, whole.

Nothing is added to an old result. A window that was marked is read from the store and replaced, so late points,
repeated ones and restarts end in the same rows.
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
    """Events that changed, on their way to the store and to the topic.

    Both get them at least once: after a crash the same changes are found and sent again. In the store that makes no
    difference; a reader of the topic takes the last message of an `event_id`.
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
            # Some failures are final for a producer; the next try has another.
            failed, self._producer = self._producer, None
            with contextlib.suppress(ClientError):
                failed.close()
            raise

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def _message(event: Event) -> bytes:
    """The event as the topic has it: JSON with the names of the query API."""
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
        """Marks that the watermark has passed, or all of them."""
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
        # Empty the rollups of hosts that have lost their points: a point sent again may name another host than before.
        # Whatever else is in a window when it is computed again was in it before. Readers do not see empty ones.
        older = self._store.host_rollups_before(version, resolution, starts[0], starts[-1])
        gone = [msgspec.structs.replace(row, count=0) for row in older if row.window_start in set(starts)]
        if gone:
            rows = [msgspec.structs.astuple(row) for row in gone]
            self._store.write_rollups(local_frame(self._spark, ROLLUPS.ddl, rows), version)

    def health(self) -> None:
        """Compute the events of hours whose rollups changed, and of all that time may have ended."""
        newest = self._ledger.newest
        if newest is None:
            return
        reach, dirty = context(self._settings), self._ledger.dirty_health()
        affected = {
            hour
            for changed in dirty
            for hour in (changed, *self._book.hours(changed + 1, changed + reach // HOUR))
        }
        # Without a changed hour, look once all the same, because time has passed.
        for done, chunk in _chunks(affected, 1) if affected else [(0, list[int]())]:
            try:
                changed_events = self._watch.changes(self._runs(chunk, reach), newest)
                if changed_events:
                    self._publisher.publish(changed_events, self._version())
            except BaseException:
                self._watch.forget()
                raise
            self._book.save()
            # What depends on the last hours of a chunk may be in the next one: their marks stay until that is done.
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
    """Windows of at most a day together, one read of the store each; and how many they are with those before."""
    done = 0
    for _, group in groupby(sorted(windows), key=lambda window: window // (per_hour * _HOURS_AT_ONCE)):
        chunk = list(group)
        done += len(chunk)
        yield done, chunk
