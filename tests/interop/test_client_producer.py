"""Our producer against a running broker, one behaviour a test."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from millstream.client import (
    JSON,
    AckMode,
    BatchFailed,
    ClientError,
    ClosedError,
    ConfigurationError,
    MessageTooLarge,
    Partitioner,
    Producer,
    ProducerConfig,
    ProducerRecord,
    QueueFull,
    RoundRobinPartitioner,
    SendResult,
    SerializationError,
    TimedOut,
    UnknownTopic,
    partition_of,
)
from millstream.testing import EmbeddedBroker
from support.reading import read_topic

# Messages are dated back here; retention must not take them while other tests go on.
pytestmark = pytest.mark.millstream(scope="session", settings={"storage.retention_check_interval": "30d"})


@pytest.fixture
def topic(millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    millstream_broker.create_topics({name: 4})
    return name


@pytest.fixture
def config(millstream_broker: EmbeddedBroker) -> Callable[..., ProducerConfig]:
    return lambda **settings: ProducerConfig(
        bootstrap_servers=millstream_broker.bootstrap_servers, **settings
    )


def test_quick_start_of_the_seed_runs_as_printed(
    millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]
) -> None:
    events = new_topic()
    config = ProducerConfig(bootstrap_servers=[millstream_broker.bootstrap_servers])
    producer = Producer(config)
    producer.start()

    producer.send(topic=events, key="user-1", value="Hello World")
    producer.flush()
    producer.close()

    (message,) = read_topic(millstream_broker.bootstrap_servers, events, 1)
    assert (message["key"], message["value"]) == (b"user-1", b"Hello World")


def test_handle_gives_partition_and_offset(config: Callable[..., ProducerConfig], topic: str) -> None:
    with Producer(config()) as producer:
        first = producer.send(topic, "a", partition=2).result(90)
        second = producer.send(topic, "b", partition=2).result(90)

    assert (first, second) == (SendResult(topic, 2, 0), SendResult(topic, 2, 1))


@pytest.mark.parametrize("acks", list(AckMode))
def test_every_acks_mode_stores_the_message(
    config: Callable[..., ProducerConfig], topic: str, millstream_broker: EmbeddedBroker, acks: AckMode
) -> None:
    with Producer(config(acks=acks)) as producer:
        result = producer.send(topic, "a", partition=0).result(90)

    assert result.offset == (-1 if acks is AckMode.NONE else 0)
    assert [each.value for each in read_topic(millstream_broker.bootstrap_servers, topic, 1)] == [b"a"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back(
    config: Callable[..., ProducerConfig], topic: str, millstream_broker: EmbeddedBroker, codec: str
) -> None:
    with Producer(config(compression_type=codec)) as producer:
        producer.send_batch(ProducerRecord(topic, b"x" * 500, partition=0) for _ in range(20))

    values = [each.value for each in read_topic(millstream_broker.bootstrap_servers, topic, 20)]
    assert values == [b"x" * 500] * 20


def test_callback_is_called_though_the_program_does_nothing_more(
    config: Callable[..., ProducerConfig], topic: str
) -> None:
    called = threading.Event()
    calls: list[tuple[SendResult | None, ClientError | None]] = []

    def callback(result: SendResult | None, error: ClientError | None) -> None:
        calls.append((result, error))
        called.set()

    with Producer(config()) as producer:
        producer.send_async(topic, "a", callback=callback, partition=1)
        assert called.wait(90)

    assert calls == [(SendResult(topic, 1, 0), None)]


def test_batch_gives_results_in_the_order_of_the_messages(
    config: Callable[..., ProducerConfig], topic: str, millstream_broker: EmbeddedBroker
) -> None:
    with Producer(config()) as producer:
        results = producer.send_batch(ProducerRecord(topic, str(n), partition=n % 3) for n in range(300))

    assert [(each.partition, each.offset) for each in results] == [(n % 3, n // 3) for n in range(300)]
    stored = {
        (each.partition, each.offset): each.value
        for each in read_topic(millstream_broker.bootstrap_servers, topic, 300, 3)
    }
    assert [stored[each.partition, each.offset] for each in results] == [str(n).encode() for n in range(300)]


def test_batch_may_be_larger_than_the_queue(config: Callable[..., ProducerConfig], topic: str) -> None:
    small = config(extra={"queue.buffering.max.messages": 100})
    with Producer(small) as producer:
        results = producer.send_batch(ProducerRecord(topic, b"x", partition=0) for _ in range(1_000))

    assert [each.offset for each in results] == list(range(1_000))


def test_batch_takes_mappings_headers_and_times(
    config: Callable[..., ProducerConfig], topic: str, millstream_broker: EmbeddedBroker
) -> None:
    message = {
        "topic": topic,
        "value": "v",
        "key": "k",
        "partition": 0,
        "headers": {"source": "test"},
        "timestamp_ms": 1_700_000_000_000,
    }
    with Producer(config()) as producer:
        producer.send_batch([message])

    (stored,) = read_topic(millstream_broker.bootstrap_servers, topic, 1)
    assert (stored.header("source"), stored.timestamp_ms) == (b"test", 1_700_000_000_000)


def test_batch_with_an_unknown_field_sends_nothing(config: Callable[..., ProducerConfig], topic: str) -> None:
    with Producer(config()) as producer:
        with pytest.raises(ConfigurationError, match="it has the fields topic, value, key"):
            producer.send_batch(
                [{"topic": topic, "value": "a", "partition": 0}, {"topic": topic, "valeu": "b"}]
            )
        assert producer.send(topic, "c", partition=0).result(90).offset == 0


def test_batch_tells_which_messages_failed(config: Callable[..., ProducerConfig], topic: str) -> None:
    with Producer(config(max_message_size=10_000)) as producer, pytest.raises(BatchFailed) as failure:
        producer.send_batch(ProducerRecord(topic, b"x" * size, partition=0) for size in (1, 20_000, 2))

    stored, refused, also_stored = failure.value.results
    assert (stored.offset, also_stored.offset) == (0, 1)
    assert isinstance(refused.error, MessageTooLarge)
    assert not failure.value.retriable


def test_partition_that_does_not_exist_is_an_unknown_topic(
    config: Callable[..., ProducerConfig], topic: str
) -> None:
    with Producer(config()) as producer:
        producer.send(topic, "a").result(90)
        with pytest.raises(UnknownTopic):
            producer.send(topic, "a", partition=99).result(90)


def test_failure_that_nobody_asked_for_is_raised_by_flush(
    config: Callable[..., ProducerConfig], topic: str
) -> None:
    producer = Producer(config())
    producer.send(topic, "a").result(90)
    # The topic's limit is lower than the client's: only the broker can refuse.
    producer_of_large = Producer(config(max_message_size=5_000_000))
    producer_of_large.send(topic, b"x" * 2_000_000)
    with pytest.raises(MessageTooLarge):
        producer_of_large.flush()

    producer_of_large.flush()
    producer_of_large.close()
    producer.close()


def test_closing_raises_what_flush_would_have_raised(
    config: Callable[..., ProducerConfig], topic: str
) -> None:
    with pytest.raises(MessageTooLarge), Producer(config(max_message_size=5_000_000)) as producer:
        producer.send(topic, b"x" * 2_000_000)


def test_error_of_the_block_is_not_hidden_by_a_failed_send(
    config: Callable[..., ProducerConfig], topic: str
) -> None:
    def fail_after_sending() -> None:
        with Producer(config(max_message_size=5_000_000)) as producer:
            producer.send(topic, b"x" * 2_000_000)
            raise KeyError

    with pytest.raises(KeyError):
        fail_after_sending()


def test_value_that_is_no_bytes_names_the_serializer(
    config: Callable[..., ProducerConfig], topic: str
) -> None:
    with (
        Producer(config()) as producer,
        pytest.raises(SerializationError, match="set key_serializer and value_"),
    ):
        producer.send(topic, {"a": 1})


def test_serializers_are_used_for_keys_and_values(
    config: Callable[..., ProducerConfig], topic: str, millstream_broker: EmbeddedBroker
) -> None:
    with Producer(config(value_serializer=JSON, key_serializer=lambda number: f"k{number}")) as producer:
        producer.send(topic, {"a": 1}, key=7, partition=0)
        producer.send(topic, None, key=8, partition=0)
        with pytest.raises(SerializationError, match="the value cannot be serialized"):
            producer.send(topic, object())

    first, second = read_topic(millstream_broker.bootstrap_servers, topic, 2)
    assert (first.key, first.value, second.key, second.value) == (b"k7", b'{"a":1}', b"k8", None)


def test_keys_land_where_the_java_client_puts_them(config: Callable[..., ProducerConfig], topic: str) -> None:
    keys = [f"user-{number}" for number in range(50)]
    with Producer(config()) as producer:
        results = producer.send_batch(ProducerRecord(topic, "v", key) for key in keys)

    assert [each.partition for each in results] == [partition_of(key.encode(), 4) for key in keys]


def test_round_robin_partitioner_takes_turns(config: Callable[..., ProducerConfig], topic: str) -> None:
    with Producer(config(partitioner=RoundRobinPartitioner())) as producer:
        results = producer.send_batch(ProducerRecord(topic, "v", "same") for _ in range(8))

    assert [each.partition for each in results] == [0, 1, 2, 3] * 2


class _ByLength(Partitioner):
    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        return len(value or b"") % partition_count


@pytest.mark.parametrize("partitioner", [_ByLength(), lambda topic, key, value, count: len(value) % count])
def test_partitioner_of_the_users_own_decides(
    config: Callable[..., ProducerConfig], topic: str, partitioner: Any
) -> None:
    with Producer(config(partitioner=partitioner)) as producer:
        chosen = [producer.send(topic, "x" * length).result(90).partition for length in (1, 2, 7)]
        named = producer.send(topic, "x", partition=3).result(90).partition

    assert (chosen, named) == ([1, 2, 3], 3)


def test_partitioner_that_chooses_a_partition_that_is_not_there_is_told(
    config: Callable[..., ProducerConfig], topic: str
) -> None:
    with Producer(config(partitioner=lambda *_: 4)) as producer, pytest.raises(ClientError, match="chose 4"):
        producer.send(topic, "v")


def test_partitioner_works_on_a_topic_that_the_first_message_creates(
    config: Callable[..., ProducerConfig], new_topic: Callable[[], str]
) -> None:
    with Producer(config(partitioner=RoundRobinPartitioner())) as producer:
        assert producer.send(new_topic(), "v").result(90).partition == 0


def test_closed_producer_refuses_to_send(config: Callable[..., ProducerConfig], topic: str) -> None:
    producer = Producer(config())
    producer.close()
    producer.close()

    with pytest.raises(ClosedError):
        producer.send(topic, "a")


def test_threads_can_share_a_producer(config: Callable[..., ProducerConfig], topic: str) -> None:
    with Producer(config()) as producer:
        threads = [
            threading.Thread(target=lambda: [producer.send(topic, "v", partition=0) for _ in range(100)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.send(topic, "last", partition=0).result(90).offset == 400


def test_broker_that_is_not_there_gives_a_timeout() -> None:
    config = ProducerConfig(
        bootstrap_servers="127.0.0.1:1", delivery_timeout_ms=1_000, extra={"log_level": 0}
    )
    producer = Producer(config)

    with pytest.raises(TimedOut) as failure:
        producer.send("topic", "v").result(90)

    assert failure.value.retriable
    producer.close()


def test_full_queue_gives_up_after_its_time() -> None:
    config = ProducerConfig(
        bootstrap_servers="127.0.0.1:1",
        max_block_ms=50,
        delivery_timeout_ms=1_000,
        extra={"queue.buffering.max.messages": 1, "log_level": 0},
    )
    producer = Producer(config)
    producer.send("topic", "v")

    with pytest.raises(QueueFull, match="the queue was full for 50 ms"):
        producer.send("topic", "v")
    with pytest.raises(TimedOut):
        producer.close()
