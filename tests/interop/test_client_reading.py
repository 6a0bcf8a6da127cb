"""Our consumer reading partitions of its own choice, without a group."""

from collections.abc import Callable, Iterator

import pytest

from millstream.client import (
    JSON,
    ClientError,
    ClosedError,
    ConfigurationError,
    Consumer,
    ConsumerConfig,
    DeserializationError,
    Message,
    OffsetOutOfRange,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    ProducerRecord,
)
from millstream.testing import EmbeddedBroker
from support.reading import read, read_topic
from support.waiting import wait_for

pytestmark = pytest.mark.millstream(scope="session")

EARLIEST = OffsetResetPolicy.EARLIEST


@pytest.fixture
def topic(millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> str:
    """Two partitions with the values 0 to 9 in each."""
    name = new_topic()
    millstream_broker.create_topics({name: 2})
    with Producer(ProducerConfig(bootstrap_servers=millstream_broker.bootstrap_servers)) as producer:
        producer.send_batch(ProducerRecord(name, str(n // 2), partition=n % 2) for n in range(20))
    return name


@pytest.fixture
def consumer(millstream_broker: EmbeddedBroker) -> Iterator[Consumer]:
    config = ConsumerConfig(bootstrap_servers=millstream_broker.bootstrap_servers, auto_offset_reset=EARLIEST)
    with Consumer(config) as made:
        yield made


def test_assigned_partitions_are_read_in_order(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0), (topic, 1)])

    messages = read(consumer, 20)

    for partition in (0, 1):
        values = [each.value for each in messages if each.partition == partition]
        assert values == [str(n).encode() for n in range(10)]
    assert consumer.assignment() == {(topic, 0), (topic, 1)}


def test_poll_returns_no_more_than_asked_for(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])

    assert len(consumer.poll(10, max_records=3)) <= 3


def test_poll_does_not_wait_for_more_than_there_is(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])

    # The timeout is that of the whole test run: waiting it out would fail.
    assert consumer.poll(600)


def test_poll_without_messages_is_empty(consumer: Consumer, topic: str) -> None:
    consumer.assign({(topic, 0): 10})

    assert consumer.poll(0.1) == []


def test_reading_starts_at_the_given_offsets(consumer: Consumer, topic: str) -> None:
    consumer.assign({(topic, 0): 7, (topic, 1): 9})

    found = {(each.partition, each.offset) for each in read(consumer, 4)}

    assert found == {(0, 7), (0, 8), (0, 9), (1, 9)}


def test_position_follows_what_was_returned(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])
    assert consumer.position(topic, 0) is None

    read(consumer, 4)

    assert consumer.position(topic, 0) == 4


def test_seek_goes_back_and_forward(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])
    read(consumer, 10)

    consumer.seek(topic, 0, 2)
    back = read(consumer, 1)[0].offset
    consumer.seek(topic, 0, EARLIEST)
    start = read(consumer, 1)[0].offset
    consumer.seek(topic, 0, 8)
    forward = read(consumer, 1)[0].offset

    assert (back, start, forward) == (2, 0, 8)


def test_seek_in_a_partition_of_others_is_refused(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])

    with pytest.raises(ClientError, match=f"seeking in {topic}, partition 1"):
        consumer.seek(topic, 1, 0)


def test_messages_given_back_are_returned_again(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0), (topic, 1)])
    messages = read(consumer, 20)

    consumer.rewind(messages[5:])

    again = read(consumer, 15)
    assert {(each.partition, each.offset) for each in again} == {
        (each.partition, each.offset) for each in messages[5:]
    }


def test_paused_partition_is_silent_until_it_is_resumed(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0), (topic, 1)])
    consumer.pause([(topic, 0)])

    assert {each.partition for each in read(consumer, 10)} == {1}
    assert consumer.poll(0.2) == []
    assert consumer.paused() == {(topic, 0)}

    consumer.resume([(topic, 0)])

    assert [each.offset for each in read(consumer, 10)] == list(range(10))
    assert consumer.paused() == set()


def test_iteration_gives_message_after_message_and_a_break_skips_none(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])

    first = []
    for message in consumer:
        first.append(message.offset)
        if len(first) == 4:
            break
    second = [each.offset for each in read(consumer, 6)]

    assert (first, second) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])


def test_iteration_ends_when_the_consumer_is_closed(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])

    for count, _ in enumerate(consumer, 1):
        if count == 10:
            consumer.close()

    assert count == 10


def test_unreadable_message_does_not_stand_in_the_way(
    millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]
) -> None:
    topic, servers = new_topic(), millstream_broker.bootstrap_servers
    with Producer(ProducerConfig(bootstrap_servers=servers)) as producer:
        producer.send_batch(ProducerRecord(topic, text) for text in ('{"n": 1}', "{", '{"n": 2}'))
    config = ConsumerConfig(bootstrap_servers=servers, auto_offset_reset=EARLIEST, value_deserializer=JSON)
    with Consumer(config) as consumer:
        consumer.assign([(topic, 0)])
        first, second, third = read(consumer, 3)

    assert (first.value, third.value) == ({"n": 1}, {"n": 2})
    with pytest.raises(DeserializationError, match="offset 1 cannot be read"):
        _ = second.value


def test_offset_that_is_not_there_is_told_when_no_reset_is_wanted(
    millstream_broker: EmbeddedBroker, topic: str
) -> None:
    config = ConsumerConfig(
        bootstrap_servers=millstream_broker.bootstrap_servers, auto_offset_reset=OffsetResetPolicy.NONE
    )
    with Consumer(config) as consumer:
        consumer.assign({(topic, 0): 1_000})
        with pytest.raises(OffsetOutOfRange):
            consumer.poll(90)


def test_latest_reads_only_what_comes_later(millstream_broker: EmbeddedBroker, topic: str) -> None:
    servers = millstream_broker.bootstrap_servers
    with Consumer(ConsumerConfig(bootstrap_servers=servers)) as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.poll(0.3) == []
        with Producer(ProducerConfig(bootstrap_servers=servers)) as producer:

            def news() -> list[Message]:
                """The end is asked for in the background: what is sent before the answer is not seen."""
                producer.send(topic, "new", partition=0).result(90)
                return consumer.poll(0.2)

            found = wait_for(news, bool, "a message")
        assert {each.value for each in found} == {b"new"}


def test_subscribing_needs_a_group_and_a_list(millstream_broker: EmbeddedBroker, consumer: Consumer) -> None:
    with pytest.raises(ConfigurationError, match="set group_id, or use assign"):
        consumer.subscribe(["events"])
    grouped = Consumer(ConsumerConfig(bootstrap_servers=millstream_broker.bootstrap_servers, group_id="g"))
    with pytest.raises(ConfigurationError, match=r"write \['events'\]"):
        grouped.subscribe("events")


def test_closed_consumer_refuses_to_poll(millstream_broker: EmbeddedBroker) -> None:
    consumer = Consumer(ConsumerConfig(bootstrap_servers=millstream_broker.bootstrap_servers))
    consumer.start()
    consumer.close()
    consumer.close()

    with pytest.raises(ClosedError):
        consumer.poll(0)


def test_reading_goes_on_after_the_broker_was_killed_and_started_again(
    millstream_broker_factory: Callable[..., EmbeddedBroker],
) -> None:
    broker = millstream_broker_factory(topics=["events"])
    config = ProducerConfig(bootstrap_servers=broker.bootstrap_servers)
    consumer_config = ConsumerConfig(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset=EARLIEST)
    with Producer(config) as producer, Consumer(consumer_config) as consumer:
        consumer.assign([("events", 0)])
        producer.send("events", "before").result(90)
        before = read(consumer, 1)
        broker.kill()
        handle = producer.send("events", "after")
        broker.start()
        assert handle.result(90).offset == 1
        after = read(consumer, 1)
    broker.close()

    assert [each.value for each in before + after] == [b"before", b"after"]


def test_headers_are_read(millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    topic, servers = new_topic(), millstream_broker.bootstrap_servers
    with Producer(ProducerConfig(bootstrap_servers=servers)) as producer:
        producer.send(topic, "v", headers=[("a", "1"), ("a", b"2"), ("b", None)])

    (message,) = read_topic(servers, topic, 1)
    assert message.headers == [("a", b"1"), ("a", b"2"), ("b", None)]
