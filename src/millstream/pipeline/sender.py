"""The thread that hands batches to the producer and waits for their acknowledgements.

Meanwhile the streamer makes the next batch, and can see that nothing is acknowledged. Nothing is given up here: what
the cluster could not take is sent again, after the producer's own retries, which cannot store a point twice.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from millstream.client import BatchFailed, ProducerRecord, UnknownTopic

_RETRY_S = 1.0

TopicGone = Callable[[], object]
"""Called when the topic has disappeared, to have it created again."""


class BatchProducer(Protocol):
    """A `Producer`, or a gateway that stands for one."""

    def send_batch(self, records: list[ProducerRecord], /) -> object: ...


class Sender:
    """Sends batches in order, one at a time, with at most one more waiting."""

    def __init__(self, producer: BatchProducer, on_topic_gone: TopicGone) -> None:
        self._producer = producer
        self._on_topic_gone = on_topic_gone
        self._changed = threading.Condition()
        self._waiting: list[ProducerRecord] | None = None
        self._is_closed = False
        self.submitted = 0
        self.acknowledged = 0
        self.failure: Exception | None = None
        """Why nothing more is sent; what is not acknowledged then never will be."""
        self._moved_at = time.monotonic()
        # A daemon, or a cluster that never answers could keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="millstream-sender", daemon=True)
        self._thread.start()

    @property
    def unanswered(self) -> int:
        return self.submitted - self.acknowledged

    @property
    def silent_s(self) -> float:
        """For how long points have been under way without any being acknowledged."""
        return time.monotonic() - self._moved_at if self.unanswered else 0.0

    def submit(self, batch: list[ProducerRecord], timeout_s: float) -> bool:
        """Hand over a batch; False when there was no room for it in time, or sending has failed."""
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: self._waiting is None or self.failure is not None, timeout_s
            )
            if not has_room or self.failure is not None:
                return False
            if not self.unanswered:
                self._moved_at = time.monotonic()
            self._waiting = batch
            self.submitted += len(batch)
            self._changed.notify_all()
        return True

    def drain(self, timeout_s: float) -> bool:
        """Wait until all is acknowledged; False when it was not in time, or sending has failed."""
        with self._changed:
            self._changed.wait_for(lambda: not self.unanswered or self.failure is not None, timeout_s)
            return not self.unanswered

    def close(self) -> None:
        """Send nothing more; a batch under way is left to the thread, which ends with it or with the program."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            is_done = not self.unanswered
        if is_done:
            self._thread.join()

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                self._send(batch)
            except Exception as error:  # noqa: BLE001 - told to the streamer, which ends with it
                with self._changed:
                    self.failure = error
                    self._changed.notify_all()
                return

    def _take(self) -> list[ProducerRecord] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._is_closed)
            batch, self._waiting = self._waiting, None
            self._changed.notify_all()
            return batch

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
        with self._changed:
            self.acknowledged += acknowledged
            if acknowledged:
                self._moved_at = time.monotonic()
            self._changed.notify_all()
