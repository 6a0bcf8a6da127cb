"""Sends points from a source to a topic when they are due, and counts acknowledgements."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from millstream.client import BatchFailed, Producer, ProducerConfig, ProducerRecord, UnknownTopic
from millstream.pipeline.doors import GatewayProducer, MqttProducer
from millstream.pipeline.sources import Burst
from millstream.pipeline.topics import ensure_topic

BATCH_POINTS = 5_000
# Bursts that are due within this time are sent together.
_SHORTEST_WAIT_S = 0.02
_LOOK_EVERY_S = 0.2
_SILENT_AFTER_S = 3.0
_RETRY_S = 1.0
_SAY_EVERY_TRIES = 10
_NEVER_MS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """When a stream ends by itself; None leaves it to its source."""

    points: int | None = None
    seconds: float | None = None
    flush_s: float = 30.0
    """How long a stream waits for acknowledgements after `seconds` or a request to stop."""


@dataclass(frozen=True, slots=True)
class Progress:
    """`behind_s` is the delay of the points now sent; `silent_s` is how long the cluster has not answered."""

    acknowledged: int
    unanswered: int
    gpus: int
    time_ms: int
    behind_s: float
    silent_s: float


@dataclass(frozen=True, slots=True)
class Summary:
    """`acknowledged` points are stored; `unanswered` ones may be stored, or were never sent."""

    acknowledged: int
    unanswered: int
    gpus: int
    seconds: float
    failure: Exception | None = None

    @property
    def is_complete(self) -> bool:
        return not self.unanswered and self.failure is None


class Observer(Protocol):
    """Shows the progress of a stream."""

    def progress(self, progress: Progress) -> None: ...

    def note(self, text: str) -> None: ...


class BatchProducer(Protocol):
    """A `Producer`, or a gateway that stands for one."""

    def send_batch(self, records: list[ProducerRecord], /) -> object: ...


class Sender:
    """A thread that passes batches to the producer in order, one at a time, while the streamer prepares the next.

    It retries retriable failures without limit, after the producer's own retries, which cannot store a point twice.
    """

    def __init__(self, producer: BatchProducer, on_topic_gone: Callable[[], object]) -> None:
        self._producer = producer
        self._on_topic_gone = on_topic_gone
        """Called when the topic has disappeared, to have it created again."""
        self._waiting: queue.Queue[list[ProducerRecord] | None] = queue.Queue(1)
        self.submitted = 0
        self.acknowledged = 0
        self.failure: Exception | None = None
        """The reason why sending stopped; messages still pending then will never be acknowledged."""
        self._moved_at = time.monotonic()
        # A daemon thread, so that a cluster that never answers cannot keep the program from ending.
        threading.Thread(target=self._run, name="millstream-sender", daemon=True).start()

    @property
    def unanswered(self) -> int:
        return self.submitted - self.acknowledged

    @property
    def silent_s(self) -> float:
        """How long points have been pending without any acknowledgement."""
        return time.monotonic() - self._moved_at if self.unanswered else 0.0

    def submit(self, batch: list[ProducerRecord], timeout_s: float) -> bool:
        """Queue a batch; False if there was no room in time, or sending has failed."""
        if self.failure is not None:
            return False
        if not self.unanswered:
            self._moved_at = time.monotonic()
        self.submitted += len(batch)
        try:
            self._waiting.put(batch, timeout=timeout_s)
        except queue.Full:
            self.submitted -= len(batch)
            return False
        return True

    def drain(self, timeout_s: float) -> bool:
        """Wait until all points are acknowledged; False if that takes too long, or sending has failed."""
        give_up_at = time.monotonic() + timeout_s
        while self.unanswered and self.failure is None and time.monotonic() < give_up_at:
            time.sleep(_SHORTEST_WAIT_S)
        return not self.unanswered

    def close(self) -> None:
        """End the thread if nothing is pending; otherwise the thread keeps sending until the program ends."""
        if not self.unanswered:
            self._waiting.put(None)

    def _run(self) -> None:
        try:
            while (batch := self._waiting.get()) is not None:
                self._send(batch)
        except Exception as error:  # noqa: BLE001 - told to the streamer, which ends with it
            self.failure = error

    def _send(self, batch: list[ProducerRecord]) -> None:
        while batch:
            try:
                self._producer.send_batch(batch)
            except BatchFailed as failure:
                errors = [result.error for result in failure.results]
                self._count(errors.count(None))
                batch = [record for record, error in zip(batch, errors, strict=True) if error is not None]
                is_topic_gone = any(isinstance(error, UnknownTopic) for error in errors)
                if not failure.retriable and not is_topic_gone:
                    raise
                if is_topic_gone:
                    self._on_topic_gone()
                time.sleep(_RETRY_S)
            else:
                self._count(len(batch))
                return

    def _count(self, acknowledged: int) -> None:
        self.acknowledged += acknowledged
        if acknowledged:
            self._moved_at = time.monotonic()


class Streamer:
    """One run of a stream. `stop` ends it early; if the cluster still answers, all sent points are acknowledged."""

    def __init__(self, sender: Sender, observer: Observer, stop: threading.Event, limits: Limits) -> None:
        self._sender = sender
        self._observer = observer
        self._stop = stop
        self._limits = limits
        self._began = time.monotonic()
        self._collected: list[ProducerRecord] = []
        self._taken_points = 0
        self._gpus: set[object] = set()
        self._time_ms = 0
        self._behind_s = 0.0
        self._is_silent = False
        self._gives_up_at: float | None = None

    def run(self, bursts: Iterator[Burst]) -> Summary:
        self._began = time.monotonic()
        try:
            for burst in bursts:
                if not self._wait_for(burst) or not self._collect(burst):
                    break
        except Exception:
            # Points collected before the source failed are still sent, but not after a KeyboardInterrupt.
            self._finish()
            raise
        self._finish()
        stored, seconds = self._sender.acknowledged, self._elapsed_s()
        return Summary(stored, self._taken_points - stored, len(self._gpus), seconds, self._sender.failure)

    def _wait_for(self, burst: Burst) -> bool:
        """Wait until the burst is due, and send what was due before. False when the stream ends."""
        while not self._is_over():
            early_s = burst.due_s - self._elapsed_s()
            if early_s <= 0:
                self._behind_s = -early_s if burst.due_s else 0.0
                return True
            if not self._submit():
                return False
            self._stop.wait(min(max(early_s, _SHORTEST_WAIT_S), _LOOK_EVERY_S))
            self._look()
        return False

    def _collect(self, burst: Burst) -> bool:
        """Take the burst, or its part within the limit of points. False when the stream ends."""
        records = burst.records
        limit = self._limits.points
        if limit is not None:
            records = records[: limit - self._taken_points]
        self._collected += records
        self._taken_points += len(records)
        self._gpus.update(record.key for record in records)
        self._time_ms = burst.time_ms
        if limit is not None and self._taken_points >= limit:
            return False
        return len(self._collected) < BATCH_POINTS or self._submit()

    def _is_over(self) -> bool:
        limit = self._limits.seconds
        if self._stop.is_set() or (limit is not None and self._elapsed_s() >= limit):
            self._be_brief()
            return True
        return self._sender.failure is not None

    def _be_brief(self) -> None:
        if self._gives_up_at is None:
            self._gives_up_at = time.monotonic() + self._limits.flush_s
            if self._is_silent:
                self._observer.note(
                    f"stopping; waiting up to {self._limits.flush_s:.0f} s for acknowledgements, another Ctrl-C ends it"
                )

    def _submit(self) -> bool:
        batch = self._collected
        if not batch:
            return True
        self._collected = []
        self._look()
        return self._patiently(lambda timeout_s: self._sender.submit(batch, timeout_s))

    def _finish(self) -> None:
        if self._submit():
            self._patiently(self._sender.drain)
        self._sender.close()
        self._look()

    def _patiently(self, step: Callable[[float], bool]) -> bool:
        """Repeat `step` until it succeeds; False if sending has failed, or the time to flush after the end is over."""
        while not step(_LOOK_EVERY_S):
            self._look()
            if self._stop.is_set():
                self._be_brief()
            is_late = self._gives_up_at is not None and time.monotonic() >= self._gives_up_at
            if is_late or self._sender.failure is not None:
                return False
        return True

    def _look(self) -> None:
        sender, gpus = self._sender, len(self._gpus)
        silent_s = sender.silent_s
        if (silent_s >= _SILENT_AFTER_S) != self._is_silent:
            self._is_silent = not self._is_silent
            if self._is_silent:
                self._observer.note(
                    f"no acknowledgement for {silent_s:.0f} s; {sender.unanswered:,} points wait, still trying"
                )
            else:
                self._observer.note("the cluster answers again")
        self._observer.progress(
            Progress(sender.acknowledged, sender.unanswered, gpus, self._time_ms, self._behind_s, silent_s)
        )

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of points; `partitions` matters only if the topic has to be created."""

    bootstrap: str
    topic: str
    partitions: int = 6
    compression: str = "lz4"
    url: str | None = None
    """The address of a gateway or an MQTT listener that takes the points instead of the brokers."""


def run_stream(
    target: Target, bursts: Iterator[Burst], observer: Observer, stop: threading.Event, limits: Limits
) -> Summary:
    """Stream until the source or a limit ends it, or `stop` is set. Raises ClientError when the topic is refused."""
    if target.url is not None:
        kind = MqttProducer if target.url.startswith("mqtt://") else GatewayProducer
        through = kind(target.url, stop, _Waiting(observer).say)
        return Streamer(Sender(through, lambda: None), observer, stop, limits).run(bursts)
    if not _ensure(target, observer, stop):
        return Summary(0, 0, 0, 0.0)
    config = ProducerConfig(
        bootstrap_servers=target.bootstrap,
        client_id="millstream-telemetry",
        compression_type=target.compression,
        # The producer itself retries without limit: idempotence keeps its retries from storing a point twice.
        delivery_timeout_ms=_NEVER_MS,
    )
    producer = Producer(config).start()
    sender = Sender(producer, lambda: _ensure(target, observer, stop))
    summary = Streamer(sender, observer, stop, limits).run(bursts)
    if summary.is_complete:
        producer.close()
    return summary


class _Waiting:
    """Shows why a stream waits, at the first attempt and every tenth."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.tries = 0

    def say(self, reason: str) -> None:
        if self.tries % _SAY_EVERY_TRIES == 0:
            self._observer.note(f"waiting: {reason}")
        self.tries += 1


def _ensure(target: Target, observer: Observer, stop: threading.Event) -> bool:
    """Whether the topic exists; False when `stop` ended the wait."""
    waiting = _Waiting(observer)
    found = ensure_topic(target.bootstrap, target.topic, target.partitions, on_waiting=waiting.say, stop=stop)
    if found and waiting.tries:
        observer.note(f"{target.bootstrap} answers")
    return found > 0
