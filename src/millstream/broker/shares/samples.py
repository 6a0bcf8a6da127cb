"""Samples of queues for the metrics."""

from collections.abc import Callable, Sequence
from itertools import islice

from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.shares import Shares
from millstream.observability.queue_metrics import QueueSample
from millstream.runtime.clock import Clock

# Batches and bytes that one scrape reads for the ages of messages.
_MOST_READS, _MOST_READ_BYTES = 500, 16 << 20


class QueueSamples:
    def __init__(self, shares: Shares, sessions: Callable[[], tuple[int, int]], clock: Clock) -> None:
        """`sessions` returns the number of share sessions, and of their partitions."""
        self._shares = shares
        self._sessions = sessions
        self._clock = clock
        self._first = 0

    @property
    def session_count(self) -> int:
        return self._sessions()[0]

    @property
    def session_partition_count(self) -> int:
        return self._sessions()[1]

    @property
    def queue_count(self) -> int:
        return len(self._shares)

    @property
    def stretch_count(self) -> int:
        return sum(queue.engine.run_count for queue in self._shares)

    def samples(self, most: int) -> list[QueueSample]:
        now_ms = self._clock.now_ms()
        samples = []
        queues = list(islice((each for each in self._shares if each.is_ready), most))
        self._look_at_oldest(queues)
        for queue in queues:
            queue.follow_log_start()
            counters, oldest_ms = queue.engine.counters, queue.oldest_ms
            samples.append(
                QueueSample(
                    queue.key.group_id,
                    queue.partition.topic,
                    queue.key.partition,
                    queue.depth,
                    queue.engine.locked,
                    max(now_ms - oldest_ms, 0) / 1000 if oldest_ms >= 0 else 0.0,
                    counters.delivered,
                    counters.redelivered,
                    counters.accepted,
                    counters.locks_ended,
                    counters.expired,
                    counters.dead_letters,
                )
            )
        return samples

    def _look_at_oldest(self, queues: Sequence[LedQueue]) -> None:
        """As much as one turn of the event loop may read; of very many busy queues, the others follow next time."""
        left, left_bytes = _MOST_READS, _MOST_READ_BYTES
        self._first %= len(queues) or 1
        for queue in (*queues[self._first :], *queues[: self._first]):
            if left <= 0 or left_bytes <= 0:
                break
            self._first += 1
            read = queue.look_at_oldest()
            left -= read > 0
            left_bytes -= read
