"""What the source tells Spark between two micro-batches, without Spark around it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream.spark.errors import DataLoss
from millstream.spark.options import read_options
from millstream.spark.readers import StreamReader
from millstream.spark.tasks import RangePartition
from support.node import NodeProcess
from support.topics import admin_for, create_topic


@pytest.fixture(scope="module")
def admin(broker: NodeProcess) -> AdminClient:
    return admin_for(broker.bootstrap)


@pytest.fixture
def open_reader(broker: NodeProcess) -> Iterator[Callable[..., StreamReader]]:
    made: list[StreamReader] = []

    def opened(topics: str, *, fail: bool) -> StreamReader:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topics,
            "failOnDataLoss": str(fail),
        }
        made.append(StreamReader(read_options(options, streaming=True)))
        return made[-1]

    yield opened
    for each in made:
        each.stop()


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(90) == 0


def make_again(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(90)
    create_topic(admin, topic)


def at(**offsets: int) -> dict[str, Any]:
    return {topic: {"0": offset} for topic, offset in offsets.items()}


@pytest.mark.parametrize("records", [3, 20], ids=["fewer records", "more records"])
def test_a_topic_that_was_made_again_fails_or_is_read_from_its_beginning(
    broker: NodeProcess,
    admin: AdminClient,
    new_topic: Callable[[], str],
    open_reader: Callable[..., StreamReader],
    records: int,
) -> None:
    topic, other = create_topic(admin, new_topic()), create_topic(admin, new_topic())
    produce(broker.bootstrap, topic, 10)
    produce(broker.bootstrap, other, 5)
    strict, lenient = (open_reader(f"{topic},{other}", fail=fail) for fail in (True, False))
    read = at(**{topic: 10, other: 5})
    for reader in (strict, lenient):
        assert reader.latestOffset(at(**{topic: 0, other: 0}), ReadAllAvailable()) == read
    make_again(admin, topic)
    produce(broker.bootstrap, topic, records)
    produce(broker.bootstrap, other, 1)

    with pytest.raises(DataLoss, match=f"{topic} was deleted and made again"):
        strict.latestOffset(read, ReadAllAvailable())
    back = lenient.latestOffset(read, ReadAllAvailable())
    assert back == at(**{topic: 0, other: 5})
    assert lenient.partitions(read, back) == []
    end = lenient.latestOffset(back, ReadAllAvailable())
    assert end == at(**{topic: records, other: 6})
    ranges = [each.wanted for each in lenient.partitions(back, end) if isinstance(each, RangePartition)]
    assert {(each.topic, each.start, each.end) for each in ranges} == {(topic, 0, records), (other, 5, 6)}
    assert lenient.latestOffset(end, ReadAllAvailable()) == end


def test_a_topic_that_was_away_for_a_while_is_a_new_one(
    broker: NodeProcess,
    admin: AdminClient,
    new_topic: Callable[[], str],
    open_reader: Callable[..., StreamReader],
) -> None:
    topic = create_topic(admin, new_topic())
    produce(broker.bootstrap, topic, 10)
    reader = open_reader(topic, fail=False)
    assert reader.latestOffset(at(**{topic: 0}), ReadAllAvailable()) == at(**{topic: 10})
    admin.delete_topics([topic])[topic].result(90)
    assert reader.latestOffset(at(**{topic: 10}), ReadAllAvailable()) == {}
    create_topic(admin, topic)
    produce(broker.bootstrap, topic, 4)
    end = reader.latestOffset({}, ReadAllAvailable())
    assert end == at(**{topic: 4})
    assert reader.latestOffset(end, ReadAllAvailable()) == end
