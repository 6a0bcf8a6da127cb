"""A queue's settings from its group and topic as one value, and what follows from them."""

import enum
from functools import cached_property

import msgspec


class Order(enum.Enum):
    NONE = "none"
    KEY = "key"
    STRICT = "strict"


class QueuePolicy(msgspec.Struct, frozen=True, dict=True):
    """Kafka's settings of share groups and their defaults, then our own. -1 means no limit."""

    lock_ms: int = 30_000
    delivery_count_limit: int = 5
    max_locks: int = 2_000
    renew_enabled: bool = True
    dead_letters: bool = False
    backoff_ms: int = 0
    backoff_factor: float = 2.0
    backoff_max_ms: int = 300_000
    retry_total_ms: int = -1
    order: Order = Order.NONE
    reads_headers: bool = False
    ttl_ms: int = -1

    @property
    def scans(self) -> bool:
        """Whether records must be scanned to decide in which order, and when, they are delivered."""
        return self.reads_headers or self.order is not Order.NONE

    @cached_property
    def deliveries(self) -> int:
        """How often a record is delivered at most, by the count limit and by the total back-off time."""
        if self.retry_total_ms < 0 or self.backoff_ms <= 0:
            return self.delivery_count_limit
        waited_ms = 0
        for count in range(1, self.delivery_count_limit):
            waited_ms += self.backoff(count)
            if waited_ms > self.retry_total_ms:
                return count
        return self.delivery_count_limit

    def backoff(self, count: int) -> int:
        """How long a record waits after `count` deliveries without success."""
        if self.backoff_ms <= 0 or count <= 0:
            return 0
        return int(min(self.backoff_ms * self.backoff_factor ** (count - 1), self.backoff_max_ms))

    @cached_property
    def suspicious_from(self) -> int:
        """After so many deliveries a record may be what crashes its consumers: it is delivered with fewer others."""
        return max(2, -(-self.deliveries // 2))

    def together(self, count: int, length: int) -> int:
        """How many records that were delivered `count` times go out together; on the last attempt, one."""
        if count + 1 >= self.deliveries:
            return 1
        return max(1, length >> (count - self.suspicious_from + 1))
