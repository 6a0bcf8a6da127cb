"""Which partition a message goes to: the one asked for, the one of its key, or the next in turn."""

from collections.abc import Callable

from millstream.protocol.key_hash import partition_of

_MAX_TOPICS = 100_000
_MAX_TOGETHER = 100


class Turns:
    """Messages without a key go round the partitions of their topic, those that come at the same moment together.

    `later` runs a function when the loop has done what it has to do now: what comes until then is appended at once,
    which costs one write instead of one for each.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self._last: dict[str, int] = {}
        self._together: dict[str, int] = {}
        """Of topics that have had messages at this moment: how many."""

    def choose(self, topic: str, count: int, partition: int | None, key: bytes | None) -> int:
        """As Kafka's clients hash keys, so that all doors agree. `partition` was checked against `count`."""
        if partition is not None:
            return partition
        if key is not None:
            return partition_of(key, count)
        return self.turn(topic, count)

    def turn(self, topic: str, count: int) -> int:
        together = self._together.get(topic, 0)
        if not self._together:
            self._later(self._together.clear)
        self._together[topic] = together + 1
        chosen = self._last.get(topic, -1)
        if together % _MAX_TOGETHER == 0:
            chosen += 1
        if len(self._last) >= _MAX_TOPICS:  # topics come and go
            self._last.clear()
        chosen = self._last[topic] = chosen if chosen < count else 0
        return chosen
