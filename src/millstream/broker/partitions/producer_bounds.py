"""How many idempotent producers are remembered: on the node, and of one partition.

A client makes a new one at will, and each is kept for producer.id.expiration.ms. Where there is no room for another,
the longest idle of its partition is forgotten, if it has been idle for longer than any client retries: what it sends
next is taken as from a new one. Where all have been busy, the new one is refused until there is room.
"""

from millstream.config.settings import PerformanceSettings
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.storage.producer_state import ProducerStates

# Longer than the delivery timeout of clients (two minutes, five in librdkafka): none of these sends anything twice.
HARMLESS_AFTER_MS = 600_000


class ProducerBounds:
    def __init__(self, settings: PerformanceSettings) -> None:
        self._most = settings.max_producers
        self._most_of_partition = settings.max_producers_per_partition
        self.count = 0
        """On the node; counted again from time to time."""
        self.evicted = 0
        self.refused = 0

    def admit(self, states: ProducerStates, producer_id: int, now_ms: int) -> None:
        """Make room for a producer that is new to its partition, or raise."""
        if producer_id < 0 or producer_id in states:
            return
        if len(states) < self._most_of_partition and self.count < self._most:
            self.count += 1
            return
        if states.forget_longest_idle(now_ms, HARMLESS_AFTER_MS):
            self.evicted += 1
            return
        self.refused += 1
        limit = (
            f"{self._most_of_partition} idempotent producers write to the partition"
            " (performance.max_producers_per_partition)"
            if len(states) >= self._most_of_partition
            else f"{self._most} idempotent producers write to this node (performance.max_producers)"
        )
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{limit}; try again later")
