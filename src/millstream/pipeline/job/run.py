"""`millstream pipeline run`: keeps the streaming query running until it is stopped.

After any failure (of the broker, the store, a batch) the query restarts from its checkpoint, as often as needed, with
pauses growing to half a minute; the display and the status file show the reason each time. A stop lets the current
batch end, then brings all rollups and events up to date.
"""

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.files import sync
from millstream.pipeline.job.dataflow import Dataflow, send_to, telemetry_stream
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.job.parts import OTHER_PARTITIONS, Parts
from millstream.pipeline.job.status import COUNTS, LogPosition, State, Status
from millstream.pipeline.topics import await_topic, ensure_topic

_LOOK_EVERY_S = 0.25
_STATUS_EVERY_S = 2.0
_SHORTEST_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 30.0

_UPKEEP_POOL = "upkeep"
# Events are computed less often than rollups, because that reads two hours of rollups.
_HEALTH_EVERY_ROUNDS = 3
_COMPACT_EVERY_S = 60.0
# Micro-batches have priority: recomputation never takes more than a third of the time.
_REST = 2.0

_CAUSE = re.compile(r"^\s*(?:[\w$]+\.)*([A-Za-z]\w*): (\S.*)$", re.MULTILINE)
_WRAPPERS = {
    "Py4JException", "Py4JJavaError", "PythonException", "RuntimeException", "SparkException", "Traceback",
    "SparkRuntimeException", "StreamingQueryException", "PySparkRuntimeError",
}  # fmt: skip
_LONGEST = 300


class Display(Protocol):
    """Receives reports about the run."""

    def note(self, text: str) -> None: ...

    def show(self, status: Mapping[str, Any]) -> None: ...


class StopRequested(Exception):
    """A stop was requested before this batch; none of it was processed."""


@dataclass(slots=True)
class PipelineRun:
    settings: PipelineSettings
    display: Display
    open_spark: Callable[[], SparkSession]
    once: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None
    """The failure of a batch, before Spark wraps it."""
    _wrote_status_at: float = 0.0
    _told_waiting_at: float = -_LONGEST_BACKOFF_S

    def run(self) -> bool:
        """Run until `stopping` is set, or with `once` until everything is read; returns whether everything is up to
        date.
        """
        if not self._ensure_topics():
            return True
        self.display.note("starting Spark")
        spark, data = self.open_spark(), Path(self.settings.data)
        with Parts.opened(self.settings, spark) as parts:
            about = {"topic": self.settings.topic, "store": parts.store_name, "master": self.settings.master}
            position = LogPosition(self.settings, data / "checkpoint")
            status = Status(data / "status.json", parts.ledger, position, about)
            status.become(State.STARTING)
            before = parts.ledger.totals
            with self._upkeep(spark, parts, status):
                try:
                    self._keep_running(spark, parts, position, status)
                finally:
                    position.close()
                    status.become(State.STOPPING)
            complete = self._complete(parts, status)
            status.become(State.STOPPED)
            self.display.note(self._totals(before, parts.ledger.totals, parts.store_name))
        return complete

    def _ensure_topics(self) -> bool:
        """Create the job's own topics, but not the one it reads, whose name may be wrong."""
        bootstrap, tell, stop = self.settings.bootstrap, self._tell_waiting, self.stopping
        await_topic(bootstrap, self.settings.topic, wait=not self.once, on_waiting=tell, stop=stop)
        for name in (self.settings.dead_letter_topic, self.settings.events_topic):
            ensure_topic(bootstrap, name, OTHER_PARTITIONS, on_waiting=tell, stop=stop)
        return not self.stopping.is_set()

    def _tell_waiting(self, text: str) -> None:
        """Report the reason for waiting only from time to time, because every attempt fails in the same way."""
        if time.monotonic() - self._told_waiting_at > _LONGEST_BACKOFF_S:
            self._told_waiting_at = time.monotonic()
            self.display.note(f"{text}; waiting for it")

    def _keep_running(self, spark: SparkSession, parts: Parts, position: LogPosition, status: Status) -> None:
        backoff_s, ready, data = _SHORTEST_BACKOFF_S, False, Path(self.settings.data)
        while not self.stopping.is_set():
            reached = parts.ledger.batch_id
            error: BaseException | None
            try:
                if is_another_topic(parts.ledger, data / "checkpoint", position.topic_id()):
                    self.display.note(
                        f"{self.settings.topic} is not the topic that was read before: it was made again, or --topic"
                        f" names another. It is read from {self.settings.starting_offsets} on"
                    )
                query = self._start(spark, parts, position)
                if not ready:
                    self.display.note(
                        f"ready: {self.settings.topic} at {self.settings.bootstrap} -> {parts.store_name}"
                    )
                    ready = True
                status.become(State.RUNNING)
                self._follow(query, status)
                error = query.exception()
            except PySparkException as failed:
                error = failed
            if error is None or self.stopping.is_set():
                return
            if parts.ledger.batch_id != reached:
                backoff_s = _SHORTEST_BACKOFF_S
            status.become(State.RETRYING)
            self._tell_failure(status, "reading and storing", self._failure or error, backoff_s)
            self._failure = None
            self.stopping.wait(backoff_s)
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)

    def _start(self, spark: SparkSession, parts: Parts, position: LogPosition) -> StreamingQuery:
        letters = partial(send_to, self.settings, self.settings.dead_letter_topic)
        dataflow = Dataflow(parts.store, parts.limits, letters)

        def process(batch: DataFrame, batch_id: int) -> None:
            if self.stopping.is_set():
                raise StopRequested
            try:
                lost = position.lost_before(batch_id)
                if lost:
                    topic = self.settings.topic
                    self.display.note(f"{lost:,} records were deleted from {topic} before they were read")
                stored = dataflow.process(batch, batch_id, parts.ledger.watermark)
                parts.ledger.record(batch_id, stored.summary, rejected=stored.rejected, lost=lost)
                if position.goes_back(batch_id):
                    self.display.note(f"{self.settings.topic} was made again; it is read from its beginning")
                    parts.ledger.read_topic(position.topic_id() or "", anew=False)
            except Exception as error:
                self._failure = error
                raise

        writer = (
            telemetry_stream(spark, self.settings, parts.limits)
            .writeStream.foreachBatch(process)
            .queryName("telemetry")
            .option("checkpointLocation", parts.checkpoint)
        )
        if self.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.settings.trigger} milliseconds").start()

    def _follow(self, query: StreamingQuery, status: Status) -> None:
        """Wait for the query's end. A stop takes effect between two batches, or when the next batch begins."""
        active = True
        while active:
            active = query.isActive
            progress = query.lastProgress
            if progress is not None:
                status.note_batch(int(progress["durationMs"].get("triggerExecution", 0)))
            if time.monotonic() - self._wrote_status_at > _STATUS_EVERY_S or not active:
                self._wrote_status_at = time.monotonic()
                status.look()
            self.display.show(status.document())
            if self.stopping.is_set() and not query.status["isTriggerActive"]:
                query.stop()
            time.sleep(_LOOK_EVERY_S if active else 0)

    @contextmanager
    def _upkeep(self, spark: SparkSession, parts: Parts, status: Status) -> Iterator[None]:
        """Run a thread beside the micro-batches for rollups of changed windows, events, and the store's upkeep."""
        stop, every_s = threading.Event(), self.settings.rollup_every / 1000

        def keep_up() -> None:
            # A separate scheduler pool, so that a long computation does not delay micro-batches.
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", _UPKEEP_POOL)
            rounds, wait_s, compacted_at = 0, every_s, time.monotonic()
            while not stop.wait(wait_s):
                began = time.monotonic()
                try:
                    parts.recomputation.minutes()
                    parts.recomputation.hours(final_only=True)
                    rounds += 1
                    if rounds % _HEALTH_EVERY_ROUNDS == 1:
                        parts.recomputation.health()
                    if time.monotonic() - compacted_at > _COMPACT_EVERY_S:
                        parts.store.compact()
                        compacted_at = time.monotonic()
                    status.note_rollup()
                    wait_s = max(every_s, _REST * (time.monotonic() - began))
                except Exception as error:  # noqa: BLE001 - the marks are still there for the next round
                    wait_s = min(max(2 * wait_s, 1.0), _LONGEST_BACKOFF_S)
                    self._tell_failure(status, "computing rollups", error, wait_s)

        thread = threading.Thread(target=keep_up, name="pipeline-upkeep", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _complete(self, parts: Parts, status: Status) -> bool:
        """Compute everything marked. Retries only with `once` and until a stop; returns whether it succeeded."""
        backoff_s = _SHORTEST_BACKOFF_S
        while True:
            try:
                parts.recomputation.everything()
            except Exception as error:  # noqa: BLE001 - said, and either tried again or left for the next start
                self._tell_failure(status, "computing rollups", error, backoff_s)
                if self.stopping.is_set() or not self.once:
                    self.display.note("not all rollups are up to date; the next start computes them")
                    return False
                self.stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
            else:
                return True

    def _totals(self, before: Mapping[str, int], after: Mapping[str, int], store: str) -> str:
        """The results of this run, in one line."""
        made = {name: after.get(name, 0) - before.get(name, 0) for name in COUNTS}
        rest = ", ".join(f"{made[name]:,} {name}" for name in COUNTS if name != "valid" and made[name])
        return f"read {self.settings.topic}: {made['valid']:,} points are in {store}{rest and f'; {rest}'}"

    def _tell_failure(self, status: Status, doing: str, error: BaseException, wait_s: float) -> None:
        text = f"{doing} failed: {in_one_line(error)}"
        status.note_error(text)
        self.display.note(f"{text}; next try in {wait_s:.0f} s")


def is_another_topic(ledger: Ledger, checkpoint: Path, topic_id: str | None) -> bool:
    """Whether the checkpoint holds offsets of another topic; if so, moves it aside."""
    if topic_id is None or topic_id == ledger.topic_id:
        return False
    is_another = ledger.topic_id != ""
    if is_another and checkpoint.exists():
        aside = checkpoint.with_name(f"{checkpoint.name}-of-{ledger.topic_id}")
        shutil.rmtree(aside, ignore_errors=True)
        checkpoint.rename(aside)
        sync(checkpoint.parent)
    ledger.read_topic(topic_id, anew=is_another)
    return is_another


def in_one_line(error: BaseException) -> str:
    """A failure of Spark in one line: the original error, without the errors that wrap it."""
    text = str(error)
    found = [match for match in _CAUSE.finditer(text) if match[1] not in _WRAPPERS and match[1][0].isupper()]
    # Errors of our data source and store say what to do; the innermost of them is the cause.
    causes = [match for match in found if "millstream." in match[0]] or found
    lines = [causes[-1][2]] if causes else [line for line in text.splitlines() if line.strip()]
    line = " ".join((lines or [type(error).__name__])[0].split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."
