"""`millstream pipeline run`: the streaming query, kept alive until it is told to stop.

Whatever fails (the broker, the store, a batch), the query is started again from its checkpoint, later and later up to
half a minute, for ever; each time the display and the status file say why. A stop lets the batch under way end, then
brings all rollups and events up to date.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.batch import BatchProcessor
from millstream.pipeline.job.dataflow import Dataflow, send_to, telemetry_stream
from millstream.pipeline.job.explain import in_one_line
from millstream.pipeline.job.log_position import LogPosition
from millstream.pipeline.job.parts import OTHER_PARTITIONS, Parts
from millstream.pipeline.job.status import COUNTS, State, Status
from millstream.pipeline.job.upkeep import Upkeep
from millstream.pipeline.topics import await_topic, ensure_topic

_LOOK_EVERY_S = 0.25
_STATUS_EVERY_S = 2.0
_SHORTEST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 30.0


class Display(Protocol):
    """Who is told what happens."""

    def note(self, text: str) -> None: ...

    def show(self, status: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class PipelineRun:
    settings: PipelineSettings
    display: Display
    open_spark: Callable[[], SparkSession]
    once: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None
    _wrote_status_at: float = 0.0
    _told_waiting_at: float | None = None

    def run(self) -> bool:
        """Until `stopping` is set, or all is read with `once`; whether everything was brought up to date."""
        if not self._ensure_topics():
            return True
        self.display.note("starting Spark")
        spark = self.open_spark()
        with Parts.opened(self.settings, spark) as parts:
            about = {"topic": self.settings.topic, "store": parts.store_name, "master": self.settings.master}
            status = Status(Path(self.settings.data) / "status.json", parts.ledger, about)
            status.become(State.STARTING)
            before = parts.ledger.totals
            upkeep = Upkeep(
                spark, parts.recomputation, parts.store, self.settings.rollup_every / 1000,
                on_round=status.note_rollup, on_failure=partial(self._tell_failure, status, "computing rollups"),
            )  # fmt: skip
            upkeep.start()
            position = LogPosition(self.settings, Path(self.settings.data) / "checkpoint")
            try:
                self._keep_running(spark, parts, position, status)
            finally:
                position.close()
                status.become(State.STOPPING)
                upkeep.stop()
            complete = self._complete(parts, status)
            status.become(State.STOPPED)
            self.display.note(self._totals(before, parts.ledger.totals, parts.store_name))
        return complete

    def _ensure_topics(self) -> bool:
        """The job's own topics are created. The one that it reads is not: its name may be wrong."""
        bootstrap, tell, stop = self.settings.bootstrap, self._tell_waiting, self.stopping
        await_topic(bootstrap, self.settings.topic, wait=not self.once, on_waiting=tell, stop=stop)
        for name in (self.settings.dead_letter_topic, self.settings.events_topic):
            ensure_topic(bootstrap, name, OTHER_PARTITIONS, on_waiting=tell, stop=stop)
        return not self.stopping.is_set()

    def _tell_waiting(self, text: str) -> None:
        """Every try fails in the same way; say it from time to time."""
        now = time.monotonic()
        if self._told_waiting_at is None or now - self._told_waiting_at > _LONGEST_BACKOFF_S:
            self._told_waiting_at = now
            self.display.note(f"{text}; waiting for it")

    def _keep_running(self, spark: SparkSession, parts: Parts, position: LogPosition, status: Status) -> None:
        letters = partial(send_to, self.settings, self.settings.dead_letter_topic)
        processor = BatchProcessor(
            Dataflow(parts.store, parts.limits, letters), parts.ledger, self.stopping, self._note_failure,
            partial(self._lost_before, position),
        )  # fmt: skip
        backoff_s, ready = _SHORTEST_BACKOFF_S, False
        while not self.stopping.is_set():
            reached = parts.ledger.batch_id
            error: BaseException | None
            try:
                query = self._start(spark, parts, processor)
                if not ready:
                    self.display.note(
                        f"ready: {self.settings.topic} at {self.settings.bootstrap} -> {parts.store_name}"
                    )
                    ready = True
                status.become(State.RUNNING)
                self._follow(query, parts, position, status)
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

    def _start(self, spark: SparkSession, parts: Parts, processor: BatchProcessor) -> StreamingQuery:
        writer = (
            telemetry_stream(spark, self.settings, parts.limits)
            .writeStream.foreachBatch(processor)
            .queryName("telemetry")
            .option("checkpointLocation", parts.checkpoint)
        )
        if self.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.settings.trigger} milliseconds").start()

    def _follow(self, query: StreamingQuery, parts: Parts, position: LogPosition, status: Status) -> None:
        """Until the query ends. A stop waits for a moment between two batches, or for the next batch to refuse."""
        while query.isActive:
            self._report(query, parts, position, status)
            if self.stopping.is_set() and not query.status["isTriggerActive"]:
                query.stop()
            time.sleep(_LOOK_EVERY_S)
        self._report(query, parts, position, status)

    def _report(self, query: StreamingQuery, parts: Parts, position: LogPosition, status: Status) -> None:
        progress = query.lastProgress
        if progress is not None:
            status.note_progress(_as_mapping(progress))
        if time.monotonic() - self._wrote_status_at > _STATUS_EVERY_S or not query.isActive:
            self._wrote_status_at = time.monotonic()
            done = parts.ledger.batch_id
            status.note_lag(position.lag(done), position.size_of(done + 1))
            status.write()
        self.display.show(status.document())

    def _complete(self, parts: Parts, status: Status) -> bool:
        """Compute all that is marked. With `once` this is tried until it works; a stop is not held up for ever."""
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
        """What this run did, in one line."""
        made = {name: after.get(name, 0) - before.get(name, 0) for name in COUNTS}
        rest = ", ".join(f"{made[name]:,} {name}" for name in COUNTS if name != "valid" and made[name])
        return f"read {self.settings.topic}: {made['valid']:,} points are in {store}{rest and f'; {rest}'}"

    def _lost_before(self, position: LogPosition, batch_id: int) -> int:
        lost = position.lost_before(batch_id)
        if lost:
            self.display.note(
                f"{lost:,} records were deleted from {self.settings.topic} before they were read"
            )
        return lost

    def _note_failure(self, error: Exception) -> None:
        self._failure = error

    def _tell_failure(self, status: Status, doing: str, error: BaseException, wait_s: float) -> None:
        text = f"{doing} failed: {in_one_line(error)}"
        status.note_error(text)
        self.display.note(f"{text}; next try in {wait_s:.0f} s")


def _as_mapping(progress: Any) -> Mapping[str, Any]:
    """Spark's report is a dictionary in some versions and an object in others."""
    if isinstance(progress, Mapping):
        return progress
    import json

    decoded: dict[str, Any] = json.loads(progress.json)
    return decoded
