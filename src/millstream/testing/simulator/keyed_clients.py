"""Clients of compacted topics: a producer that rewrites a few keys, and a consumer that knows their values."""

from millstream.protocol.records import Record
from millstream.testing.history import Outcome, Seen
from millstream.testing.history.compacted import CompactedHistory, Found, Put, told_as
from millstream.testing.simulator.client import SimulatedClient
from millstream.testing.simulator.consumer import SimulatedConsumer
from millstream.testing.simulator.producer import SimulatedProducer

_KEYS = 4
_REMOVED_SHARE = 0.15


class KeyedProducer(SimulatedProducer):
    """The only writer of its keys. It sends "key=value", or "key removed" with a number."""

    def __init__(
        self,
        client: SimulatedClient,
        topic: str,
        partition: int,
        compacted: CompactedHistory,
        *,
        topic_id: bytes,
        key: str,
    ) -> None:
        super().__init__(client, topic, partition, compacted.log, topic_id=topic_id, key=key)
        self._compacted = compacted
        self._puts: dict[str, tuple[str, str | None]] = {}
        """Maps each value, as the producer counts them, to the record's key and its value, if any."""

    def _record(self, number: int, timestamp_ms: int, value: str) -> Record:
        key, content = self._put(value)
        return Record(number, timestamp_ms, key.encode(), None if content is None else content.encode())

    def _put(self, value: str) -> tuple[str, str | None]:
        """Drawn once, because a resent batch must be the same batch."""
        if value not in self._puts:
            random = self.client.random
            key = f"k{random.randrange(_KEYS)}"
            self._puts[value] = key, None if random.random() < _REMOVED_SHARE else value
        return self._puts[value]

    def _sent(self, value: str, start: float, outcome: Outcome, offset: int | None) -> None:
        key, content = self._put(value)
        super()._sent(told_as(key, content, offset), start, outcome, offset)
        self._compacted.puts.append(Put(self._key, key, content, outcome, offset))


class KeyedConsumer(SimulatedConsumer):
    def __init__(
        self,
        client: SimulatedClient,
        topic: str,
        partition: int,
        compacted: CompactedHistory,
        topic_id: bytes,
        key: str,
        *,
        is_final: bool,
    ) -> None:
        super().__init__(
            client, topic, partition, compacted.log, is_final=is_final, topic_id=topic_id, key=key
        )
        self._compacted = compacted
        self._latest: dict[str, Found] = {}

    def _told(self, record: Record) -> Seen:
        key = (record.key or b"").decode()
        value = None if record.value is None else record.value.decode()
        self._latest[key] = Found(self.key, key, value, record.offset)
        return Seen(self.key, record.offset, told_as(key, value, record.offset))

    def tell_found(self) -> None:
        """Everything was read: note the final value of each key."""
        self._compacted.found += self._latest.values()
        self._compacted.final.add(self.key)
