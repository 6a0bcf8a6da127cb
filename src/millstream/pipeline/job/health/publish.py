"""Events that changed, on their way to the store and to the topic.

Both get them at least once: after a crash the same changes are found and sent again. In the store that makes no
difference; a reader of the topic takes the last message of an `event_id`.
"""

from collections.abc import Sequence
from dataclasses import asdict

import orjson
from pyspark.sql import SparkSession

from millstream.client import Producer, ProducerConfig
from millstream.pipeline.moments import rfc3339
from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.local_frames import local_frame
from millstream.pipeline.stores.rows import Event
from millstream.pipeline.stores.tables import EVENTS


class EventPublisher:
    def __init__(self, spark: SparkSession, store: Store, bootstrap: str, topic: str) -> None:
        self._spark = spark
        self._store = store
        self._topic = topic
        self._config = ProducerConfig(bootstrap_servers=bootstrap.split(","))
        self._producer: Producer | None = None

    def publish(self, events: Sequence[Event], version: int) -> None:
        rows = [tuple(asdict(event)[name] for name in EVENTS.names) for event in events]
        self._store.write_events(local_frame(self._spark, EVENTS.ddl, rows), version)
        if self._producer is None:
            self._producer = Producer(self._config)
        self._producer.send_batch(
            {"topic": self._topic, "key": event.uuid.encode(), "value": message_of(event)} for event in events
        )

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def message_of(event: Event) -> bytes:
    """The event as the topic has it: JSON with the names of the query API."""
    document = asdict(event)
    document["evidence"] = orjson.loads(event.evidence)
    document["start"], document["end"] = rfc3339(event.start), rfc3339(event.end)
    return orjson.dumps(document)
