"""Chooses partitions for messages that do not name one."""

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable

from millstream.protocol.key_hash import partition_of


class Partitioner(ABC):
    """Chooses partitions. Pass an instance, or a function with the arguments of `partition`, as the `partitioner`
    of a ProducerConfig.

    Example: the customers of a few big tenants get partitions of their own, the rest share the others.

    >>> class TenantPartitioner(Partitioner):
    ...     def __init__(self, big: list[str]) -> None:
    ...         self._big = {tenant.encode(): number for number, tenant in enumerate(big)}
    ...
    ...     def partition(self, topic, key, value, partition_count):
    ...         tenant = (key or b"").split(b"/")[0]
    ...         if tenant in self._big:
    ...             return self._big[tenant]
    ...         shared = partition_count - len(self._big)
    ...         return len(self._big) + partition_of(key or b"", shared)
    >>> TenantPartitioner(["acme", "globex"]).partition("orders", b"globex/17", None, 12)
    1
    """

    @abstractmethod
    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        """A number from 0 to `partition_count` - 1. Called on every thread that sends, with serialized data."""


PartitionFunction = Callable[[str, bytes | None, bytes | None, int], int]


class HashPartitioner(Partitioner):
    """The default: by the key's murmur2 hash, so a key lands where Kafka's Java client puts it.

    Messages without a key stay on a random partition for a few milliseconds, which makes full batches. A producer
    leaves all this to librdkafka; `partition` tells where a key would go.

    >>> HashPartitioner().partition("events", b"user-1", None, 12)
    8
    """

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:  # noqa: ARG002
        if key is None:
            return random.randrange(partition_count)  # noqa: S311 - to spread load, not to hide anything
        return partition_of(key, partition_count)


class RoundRobinPartitioner(Partitioner):
    """One partition after the other, by topic, whether messages have a key or not.

    >>> turns = RoundRobinPartitioner()
    >>> [turns.partition("events", None, None, 3) for _ in range(4)]
    [0, 1, 2, 0]
    """

    def __init__(self) -> None:
        self._turns: dict[str, itertools.count[int]] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:  # noqa: ARG002
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns.setdefault(topic, itertools.count())
        return next(turn) % partition_count
