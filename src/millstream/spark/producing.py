"""Writes a task's Arrow batches with librdkafka's producer. A task succeeds only when every row is stored."""

import contextlib
import time
from collections.abc import Iterable, Mapping
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from millstream.client.connect import open_producer
from millstream.client.errors import ClientError, from_kafka
from millstream.spark.errors import SourceError
from millstream.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

_ANY_PARTITION = -1
_POLL_EVERY_ROWS = 1000
_producers: dict[tuple[tuple[str, Any], ...], "Producer"] = {}


class WriteFailed(SourceError):
    """The cluster did not accept some rows."""


class TaskProducer:
    """A producer for one task. It stays open for the worker's next task, unless a failure occurred."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._identity = tuple(sorted(options.properties.items()))
        self._failed = 0
        self._first_failure: ClientError | None = None
        self.rows = 0

    def __enter__(self) -> Self:
        kept = self._identity in _producers
        self._producer = _producers.pop(self._identity) if kept else _opened(self._options.properties)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # Spark runs the task again, so queued messages must not be stored as well.
            with contextlib.suppress(Exception):
                self._producer.purge()
                self._producer.flush(1)
            return
        self._producer.flush()
        self._raise_failure()
        _producers[self._identity] = self._producer

    def send(self, batch: pa.RecordBatch) -> None:
        for count, (topic, partition, key, value, headers) in enumerate(self._messages(batch), 1):
            if topic is None:
                raise WriteFailed("a row has no topic; fill its column 'topic', or set the option topic")
            target = _ANY_PARTITION if partition is None else partition
            pairs = None if headers is None else [(each["key"], each["value"]) for each in headers]
            self._produce(topic, value, key, target, pairs)
            if not count % _POLL_EVERY_ROWS:
                self._producer.poll(0)
        self.rows += batch.num_rows
        self._producer.poll(0)
        self._raise_failure()

    def _messages(self, batch: pa.RecordBatch) -> Iterable[tuple[Any, Any, Any, Any, Any]]:
        columns = self._options.columns

        def values(name: str) -> Iterable[Any]:
            return batch.column(columns[name]).to_pylist() if name in columns else repeat(None)

        topics = repeat(self._options.topic) if self._options.topic is not None else values("topic")
        return zip(
            topics, values("partition"), values("key"), values("value"), values("headers"), strict=False
        )

    def _produce(self, topic: str, value: Any, key: Any, partition: int, headers: Any) -> None:
        deadline = 0.0
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, headers=headers, on_delivery=self._failure
                )
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + self._options.max_block_s
                if now > deadline:
                    raise WriteFailed(
                        f"the cluster takes rows too slowly: the queue was full for {self._options.max_block_s:.0f} s "
                        "(kafka.max.block.ms)"
                    ) from None
                self._producer.poll(0.1)
            except Exception as error:
                raise WriteFailed(f"a row for {_place(topic, partition)} cannot be sent: {error}") from error
            else:
                return

    def _failure(self, error: "KafkaError | None", message: Any) -> None:
        """Called only for failures; see delivery.report.only.error."""
        if error is None:
            return
        self._failed += 1
        if self._first_failure is None:
            place = _place(message.topic(), message.partition())
            self._first_failure = from_kafka(f"a row for {place} was not stored", error)

    def _raise_failure(self) -> None:
        if self._first_failure is not None:
            raise WriteFailed(
                f"{self._failed} rows were not stored; the first: {self._first_failure}"
            ) from self._first_failure


def _place(topic: str, partition: int) -> str:
    return topic if partition < 0 else f"{topic}-{partition}"


def _opened(properties: Mapping[str, Any]) -> "Producer":
    return open_producer({**properties, "delivery.report.only.error": True})
