"""Which partition a message goes to: the one asked for, the one of its key, or the next in turn."""

from millstream.client.murmur2 import partition_of

_MAX_TOPICS = 100_000


class Turns:
    """The next partition of each topic, for messages without a key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def choose(self, topic: str, count: int, partition: int | None, key: bytes | None) -> int:
        """As Kafka's clients hash keys, so that all doors agree. `partition` was checked against `count`."""
        if partition is not None:
            return partition
        if key is not None:
            return partition_of(key, count)
        return self.turn(topic, count)

    def turn(self, topic: str, count: int) -> int:
        if len(self._next) >= _MAX_TOPICS:  # topics come and go
            self._next.clear()
        chosen = self._next.get(topic, -1) + 1
        chosen = chosen if chosen < count else 0
        self._next[topic] = chosen
        return chosen
