"""`spark.read.format("millstream")`."""

import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from support.node import NodeProcess
from support.topics import create_topic

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def load(spark: SparkSession, broker: NodeProcess) -> Callable[..., DataFrame]:
    def loaded(**options: Any) -> DataFrame:
        reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.options(**options).load()

    return loaded


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.selectExpr("cast(value as string) value").collect())


def test_columns_and_values_are_those_of_sparks_kafka_source(load, broker, topic_with) -> None:
    topic = topic_with()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"v", b"k", timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", None)])
    producer.produce(topic, None, None, timestamp=5)
    producer.flush(90)
    frame = load(subscribe=topic, includeHeaders=True)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = frame.orderBy("offset").collect()
    at = datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, datetime.UTC)
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition) == (b"k", b"v", topic, 0)
    assert first.timestamp.astimezone(datetime.UTC) == at
    assert first.timestampType == 0
    assert [(each.key, each.value) for each in first.headers] == [("h", b"1"), ("h", None)]
    assert (second.key, second.value, second.headers, second.offset) == (None, None, None, 1)
    assert "headers" not in load(subscribe=topic).columns


def test_ranges_by_offset_and_by_time(load, topic_with, fill) -> None:
    topic = topic_with(2)
    fill(topic, range(100), 0, timestamp=1000)
    fill(topic, range(100, 150), 1, timestamp=2000)
    fill(topic, range(150, 200), 0, timestamp=3000)
    assert numbers(load(subscribe=topic)) == list(range(200))
    offsets = {"startingOffsets": {topic: {"0": 90, "1": -2}}, "endingOffsets": {topic: {"0": -1, "1": 10}}}
    by_offset = load(subscribe=topic, **{name: json.dumps(value) for name, value in offsets.items()})
    assert numbers(by_offset) == [*range(90, 110), *range(150, 200)]
    latest = "latest"
    by_time = load(
        subscribe=topic,
        startingTimestamp=1500,
        startingOffsetsByTimestampStrategy=latest,
        endingTimestamp=3000,
    )
    assert numbers(by_time) == list(range(100, 150))
    times = json.dumps({topic: {"0": 3000, "1": 1}})
    assert numbers(load(subscribe=topic, startingOffsetsByTimestamp=times)) == list(range(100, 200))
    with pytest.raises(PySparkException, match="has no record at or after 9000"):
        load(subscribe=topic, startingTimestamp=9000).count()


def test_patterns_assignments_and_more_tasks_than_partitions(load, admin, new_topic, fill) -> None:
    stem = new_topic()
    one, other = create_topic(admin, f"{stem}.one", 2), create_topic(admin, f"{stem}.other")
    fill(one, range(50), 0)
    fill(one, range(50, 60), 1)
    fill(other, range(60, 70))
    assert numbers(load(subscribe=f"{one},{other}")) == list(range(70))
    assert numbers(load(subscribePattern=f"{stem}[.]o.*")) == list(range(70))
    assigned = load(assign=json.dumps({one: [1], other: [0]}), minPartitions=6)
    assert assigned.rdd.getNumPartitions() == 6
    assert numbers(assigned) == list(range(50, 70))


def test_an_empty_topic_has_no_rows(load, topic_with) -> None:
    assert load(subscribe=topic_with(3)).count() == 0


def test_a_query_may_stop_early_and_another_follow(load, topic_with, fill) -> None:
    topic = topic_with(2)
    for partition in (0, 1):
        fill(topic, range(20_000), partition)
    assert len(load(subscribe=topic, **{"kafka.max.partition.fetch.bytes": 20_000}).limit(5).collect()) == 5
    assert load(subscribe=topic).count() == 40_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "no-such-topic"}, "no-such-topic does not exist on"),
        ({}, "exactly one of the options subscribe"),
        ({"subscribe": "t", "startingOffsets": '{"t":1}'}, "expected earliest, latest or"),
        (
            {"subscribe": "t", "kafka.group.id": "g", "kafka.enable.auto.commit": "true"},
            "kept in the checkpoint",
        ),
        ({"subscribe": "t", "kafka.security.protocol": "SASL_SSL"}, "GSSAPI, which cannot be done here"),
    ],
)
def test_what_is_wrong_is_said(load, options, says) -> None:
    with pytest.raises(PySparkException, match=says):
        load(**options).count()
