"""Reading messages."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from millstream.client.connect import kafka_errors, log, open_consumer
from millstream.client.consumer_config import ConsumerConfig, consumer_config
from millstream.client.errors import ClientError, ClosedError, ConfigurationError
from millstream.client.incoming import Incoming
from millstream.client.message import Message
from millstream.client.positions import (
    COMMITTED,
    LOGICAL,
    Offsets,
    Place,
    TopicPartition,
    at,
    first_of_each,
    known,
    partitions,
    places,
    raise_failed,
    with_offsets,
)
from millstream.client.serde import Deserializer, K, Serde, V
from millstream.client.settings import OffsetResetPolicy

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer
    from confluent_kafka import TopicPartition as RawPlace

Listener = Callable[[list[TopicPartition]], object]

_STORE_EVERY_S = 0.1
_IDLE_S = 0.5
_REQUEST_TIMEOUT_S = 15.0
_LEADERS_TIMEOUT_S = 2.0


class Consumer(Generic[K, V]):
    """Reads messages: as a member of a group (`subscribe`), or partitions of its own choice (`assign`).

    >>> from millstream.client import STRING, Producer
    >>> with Producer("localhost:9092") as producer:
    ...     stored = producer.send("notes", "Hello World").result()
    >>> with Consumer(
    ...     "localhost:9092", group_id="my-group", auto_offset_reset="earliest", value_deserializer=STRING
    ... ) as consumer:
    ...     consumer.subscribe(["notes"])
    ...     for message in consumer:
    ...         print(message.topic, message.offset, message.value)
    ...         break
    notes 0 Hello World

    The settings are those of ConsumerConfig, by name or as one object: `Consumer(ConsumerConfig(...))`. The
    deserializers give messages their types. With `enable_auto_commit` a message counts as processed when the next
    `poll` begins (or the next turn of the loop), and at `close`; never before, so a crash loses nothing. A `with` block
    that ends with an exception does not count what the last `poll` returned. Only one thread at a time may use it.
    """

    def __init__(
        self,
        config: ConsumerConfig[K, V] | str | Sequence[str],
        *,
        key_deserializer: Serde[K] | Deserializer[K] | None = None,
        value_deserializer: Serde[V] | Deserializer[V] | None = None,
        **settings: Any,
    ) -> None:
        self.config = config = consumer_config(config, key_deserializer, value_deserializer, settings)
        self._auto_commit = config.enable_auto_commit and config.group_id is not None
        self._store_at = 0.0
        self._paused: set[TopicPartition] = set()
        self._raw: RawConsumer | None = None
        self._incoming: Incoming | None = None
        self._closed = False

    def start(self) -> Self:
        """Create the connection now rather than with the first call."""
        if self._closed:
            raise ClosedError("the consumer is closed; create a new one")
        if self._raw is None:
            self._raw = open_consumer(self.config.properties())
            self._incoming = Incoming(self.config, self._raw)
        return self

    def subscribe(
        self, topics: Sequence[str], *, on_assign: Listener | None = None, on_revoke: Listener | None = None
    ) -> None:
        """Join the group and read the partitions it gives to this member. A name that starts with ^ is a pattern.

        The listeners are called from within `poll`, with lists of TopicPartition.
        """
        if self.config.group_id is None:
            raise ConfigurationError("subscribe needs a group: set group_id, or use assign")
        if isinstance(topics, str):
            raise ConfigurationError(f"subscribe takes a list of topics; write [{topics!r}]")

        def assigned(_: "RawConsumer", given: "list[RawPlace]") -> None:
            if on_assign is not None:
                on_assign(places(given))

        def revoked(_: "RawConsumer", taken: "list[RawPlace]") -> None:
            # This runs within a poll, which means that everything returned before is processed.
            self._store_processed()
            self._paused.difference_update(places(taken))
            if on_revoke is not None:
                on_revoke(places(taken))

        def lost(_: "RawConsumer", taken: "list[RawPlace]") -> None:
            self._paused.difference_update(places(taken))
            if on_revoke is not None:
                on_revoke(places(taken))

        with kafka_errors("subscribing"):
            self._started().subscribe(list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def unsubscribe(self) -> None:
        """Leave the group, or give up the assigned partitions."""
        with kafka_errors("unsubscribing"):
            self._started().unsubscribe()
            self._started().unassign()

    def assign(self, given: Iterable[Place] | Offsets) -> None:
        """Read these partitions, from these offsets where the argument is a mapping.

        Without an offset reading starts at the group's committed offset, or where `auto_offset_reset` says.
        """
        if isinstance(given, Mapping):
            chosen = with_offsets(given)
        else:
            start = (
                COMMITTED
                if self.config.group_id
                else LOGICAL.get(OffsetResetPolicy(self.config.auto_offset_reset), COMMITTED)
            )
            chosen = [at(place, start) for place in given]
        raw = self._started()
        with kafka_errors("assigning partitions"):
            self._learn_leaders(raw, {each.topic for each in chosen})
            self._paused.clear()
            raw.assign(chosen)

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Message[K, V]]:
        """The messages that have arrived, at most `max_records` (`max_poll_records`); an empty list when none arrive
        within `timeout` seconds. Call it within every `max_poll_interval_ms`, even if all partitions are paused."""
        return self._ready().read(timeout, max_records or self.config.max_poll_records)

    def __iter__(self) -> Iterator[Message[K, V]]:
        """Yield messages one by one until the consumer is closed."""
        while not self._closed:
            message = self._ready().read_one(_IDLE_S)
            if message is not None:
                yield message

    def commit(
        self, offsets: Message[Any, Any] | Offsets | None = None, *, asynchronous: bool = False
    ) -> None:
        """Commit the group's position; waits for the broker unless `asynchronous`.

        Without an argument: everything that `poll` has returned so far. With a message: this message and all before
        it in its partition. With a mapping: the offsets of the next messages to read, `message.next_offset`.
        """
        raw = self._started()
        if isinstance(offsets, Message):
            chosen = [at((offsets.topic, offsets.partition), offsets.next_offset)]
        elif offsets is None:
            chosen = self._processed(raw)
        else:
            chosen = with_offsets(offsets)
        if not chosen:
            return
        with kafka_errors("committing"):
            if asynchronous:
                raw.commit(offsets=chosen, asynchronous=True)
            else:
                raise_failed("committing", raw.commit(offsets=chosen, asynchronous=False))

    def committed(self, topic: str, partition: int) -> int | None:
        """The offset the group has committed, or None."""
        with kafka_errors("asking for the committed offset"):
            found = self._started().committed(partitions([(topic, partition)]), _REQUEST_TIMEOUT_S)
        raise_failed("asking for the committed offset", found)
        return found[0].offset if found[0].offset >= 0 else None

    def position(self, topic: str, partition: int) -> int | None:
        """The offset after the last message that `poll` has returned, or None before the first."""
        with kafka_errors("asking for the position"):
            found = self._started().position(partitions([(topic, partition)]))
        return found[0].offset if found[0].offset >= 0 else None

    def seek(self, topic: str, partition: int, offset: int | OffsetResetPolicy) -> None:
        """Continue at another offset of an assigned partition, or at its beginning or end."""
        target = at((topic, partition), LOGICAL[offset] if isinstance(offset, OffsetResetPolicy) else offset)
        raw = self._started()
        with kafka_errors(f"seeking in {topic}, partition {partition}"):
            raw.seek(target)
            if self._auto_commit and target.offset >= 0:
                raw.store_offsets(offsets=[target])

    def rewind(self, messages: Iterable[Message[Any, Any]]) -> None:
        """Give messages back: what `poll` returned but was not processed will be returned again.

        If the partition now belongs to another member, the messages are returned there.
        """
        assigned = self.assignment()
        for (topic, partition), offset in first_of_each(messages).items():
            if (topic, partition) in assigned:
                self.seek(topic, partition, offset)

    def pause(self, paused: Iterable[Place]) -> None:
        """Return no messages of these partitions until `resume`; the consumer stays a member of its group."""
        chosen = [TopicPartition(*place) for place in paused]
        with kafka_errors("pausing"):
            self._started().pause(partitions(chosen))
        self._paused.update(chosen)

    def resume(self, paused: Iterable[Place]) -> None:
        """Return messages of these partitions again."""
        chosen = [TopicPartition(*place) for place in paused]
        with kafka_errors("resuming"):
            self._started().resume(partitions(chosen))
        self._paused.difference_update(chosen)

    def paused(self) -> set[TopicPartition]:
        """The partitions that `pause` holds back."""
        return set(self._paused)

    def assignment(self) -> set[TopicPartition]:
        """The partitions this consumer reads now."""
        with kafka_errors("asking for the assignment"):
            return set(places(self._started().assignment()))

    def close(self, *, processed: bool = True) -> None:
        """Commit what is processed (with `enable_auto_commit`), leave the group and disconnect.

        `processed=False` leaves out what the last `poll` returned.
        """
        if self._closed:
            return
        self._closed = True
        raw, self._raw, self._incoming = self._raw, None, None
        if raw is None:
            return
        if processed:
            self._store(raw)
        with kafka_errors("closing"):
            raw.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(processed=error is None)

    def _learn_leaders(self, raw: "RawConsumer", topics: set[str]) -> None:
        """Fetches the metadata now: librdkafka looks for the leaders of assigned partitions only twice a second."""
        for topic in topics:
            try:
                with kafka_errors(f"asking for the leaders of {topic}"):
                    raw.list_topics(topic, _LEADERS_TIMEOUT_S)
            except ClientError as error:
                log.warning("%s", error)
                return

    def _started(self) -> "RawConsumer":
        if self._raw is None:
            self.start()
        assert self._raw is not None
        return self._raw

    def _ready(self) -> Incoming:
        """The source of messages. Asking for more means that those returned before are processed."""
        if self._incoming is None:
            self.start()
            assert self._incoming is not None
        if self._auto_commit and time.monotonic() >= self._store_at:
            self._store_processed()
        return self._incoming

    def _processed(self, raw: "RawConsumer") -> "list[RawPlace]":
        with kafka_errors("asking for the positions"):
            return known(raw.position(raw.assignment()))

    def _store_processed(self) -> None:
        # `_raw` is None while closing: leaving the group revokes partitions, which must not count as processing.
        if self._raw is not None:
            self._store_at = time.monotonic() + _STORE_EVERY_S
            self._store(self._raw)

    def _store(self, raw: "RawConsumer") -> None:
        """Pass our positions to librdkafka, which commits them in the background."""
        if not self._auto_commit:
            return
        try:
            positions = self._processed(raw)
            if positions:
                with kafka_errors("storing offsets"):
                    raw.store_offsets(offsets=positions)
        except ClientError as error:
            # The partition was taken away meanwhile; its next owner reads these messages again.
            log.debug("%s", error)
