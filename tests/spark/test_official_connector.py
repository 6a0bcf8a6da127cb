"""Spark's own Kafka connector and this source, side by side: a job that changes the format's name sees the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from support.node import NodeProcess
from support.spark import CONNECTOR_JARS
from support.topics import create_topic
from support.waiting import wait_for

pytestmark = [
    pytest.mark.skipif(
        CONNECTOR_JARS is None,
        reason="needs Spark's Kafka connector in MILLSTREAM_TEST_SPARK_KAFKA_JARS; `make java` fetches it",
    ),
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(1200),
]

FORMATS = ("millstream", "kafka")


@pytest.fixture
def topic(broker: NodeProcess, admin, new_topic) -> str:
    """Three partitions, every codec, nulls, headers, and a time for each record."""
    name = create_topic(admin, new_topic(), 3)
    for index, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec})
        for number in range(200):
            producer.produce(
                name,
                None if number % 50 == 0 else b"%d of %s" % (number, codec.encode()),
                None if number % 30 == 0 else b"%d" % number,
                number % 3,
                timestamp=1_700_000_000_000 + 1000 * number + index,
                headers=[("n", b"%d" % number), ("none", None)] if number % 4 == 0 else None,
            )
        assert producer.flush(120) == 0
    return name


@pytest.fixture
def load(spark: SparkSession, broker: NodeProcess) -> Callable[..., DataFrame]:
    def loaded(kind: str, **options: Any) -> DataFrame:
        reader = spark.read.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.options(**options).load()

    return loaded


def test_batch_reads_are_equal(load: Callable[..., DataFrame], topic: str) -> None:
    some = json.dumps({topic: {"0": 5, "1": -2, "2": 100}})
    cases: list[dict[str, Any]] = [
        {"includeHeaders": True},
        {"startingOffsets": some, "minPartitions": 7},
        {"startingTimestamp": 1_700_000_050_000, "endingTimestamp": 1_700_000_150_000},
        {"endingOffsets": json.dumps({topic: {"0": -1, "1": 10, "2": 0}})},
        {
            "startingOffsetsByTimestamp": json.dumps(
                {topic: {str(n): 1_700_000_100_000 + n for n in range(3)}}
            ),
            "endingOffsetsByTimestamp": json.dumps({topic: dict.fromkeys("012", 1_700_000_180_000)}),
        },
        {"startingTimestamp": 1_900_000_000_000, "startingOffsetsByTimestampStrategy": "latest"},
    ]
    for options in cases:
        ours, theirs = (load(kind, subscribe=topic, **options) for kind in FORMATS)
        assert ours.dtypes == theirs.dtypes
        rows = [
            sorted(frame.collect(), key=lambda row: (row.partition, row.offset)) for frame in (ours, theirs)
        ]
        assert rows[0] or "startingOffsetsByTimestampStrategy" in options, options
        assert rows[0] == rows[1], options
    for tasks in (4, 7, 30):
        ours, theirs = (
            load(kind, subscribe=topic, minPartitions=tasks).rdd.getNumPartitions() for kind in FORMATS
        )
        assert ours == theirs >= 3


def test_streams_take_the_same_steps(
    spark: SparkSession, broker: NodeProcess, topic: str, tmp_path: Path
) -> None:
    steps = []
    for kind in FORMATS:
        reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
        frame = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=300).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / kind))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        ends = [json.loads(progress["sources"][0]["endOffset"]) for progress in query.recentProgress]
        steps.append([end for number, end in enumerate(ends) if number == 0 or end != ends[number - 1]])
    assert steps[0] == steps[1]


def test_deleted_records_fail_a_query_or_are_passed_over(
    spark: SparkSession, broker: NodeProcess, admin, topic: str, tmp_path: Path
) -> None:
    def run(kind: str, **options: Any) -> tuple[int, str]:
        counts: list[int] = []
        reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
        frame = reader.options(subscribe=topic, startingOffsets="earliest", **options).load()
        writer = frame.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
        query = writer.option("checkpointLocation", str(tmp_path / kind)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(300)
        except StreamingQueryException as failed:
            return sum(counts), str(failed)
        return sum(counts), ""

    for kind in FORMATS:
        assert run(kind, maxOffsetsPerTrigger=100)[1] == ""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(30):
        producer.produce(topic, b"more", partition=number % 3)
    assert producer.flush(120) == 0
    ends = {n: _end(broker, topic, n) for n in range(3)}
    for future in admin.delete_records([Place(topic, n, ends[n] - 5) for n in range(3)]).values():
        future.result(120)
    failed = {kind: run(kind)[1] for kind in FORMATS}
    assert all("failOnDataLoss" in told for told in failed.values()), failed
    assert {run(kind, failOnDataLoss="false")[0] for kind in FORMATS} == {15}


def _end(broker: NodeProcess, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "ends"})
    try:
        return int(consumer.get_watermark_offsets(Place(topic, partition), 30)[1])
    finally:
        consumer.close()


def test_what_either_writes_the_other_reads(spark, broker, load, admin, new_topic) -> None:
    columns = "cast(id as string) key", "concat('v', id) value", "cast(id % 2 as int) partition"
    headers = "array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) headers"
    frame = spark.range(100).selectExpr(*columns, headers)
    found = []
    for writer, reader in (FORMATS, FORMATS[::-1]):
        name = create_topic(admin, new_topic(), 2)
        saved = frame.write.format(writer).mode("append").option("topic", name)
        saved.option("kafka.bootstrap.servers", broker.bootstrap).save()
        rows = load(reader, subscribe=name, includeHeaders=True).select(
            "key", "value", "partition", "headers"
        )
        found.append(sorted(rows.collect(), key=lambda row: row.value))
    assert len(found[0]) == 100
    assert found[0] == found[1]


def test_either_goes_on_with_the_others_checkpoint(
    spark: SparkSession, broker: NodeProcess, admin, new_topic, fill, tmp_path: Path
) -> None:
    name = create_topic(admin, new_topic(), 2)
    seen: list[int] = []

    def collect(frame: DataFrame, _: int) -> None:
        seen.extend(int(row.value) for row in frame.selectExpr("cast(value as string) value").collect())

    for number, kind in enumerate(("kafka", "millstream", "kafka")):
        fill(name, range(10 * number, 10 * number + 10), number % 2)
        reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
        writer = reader.options(subscribe=name, startingOffsets="earliest").load().writeStream
        query = (
            writer.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
        )
        assert query.start().awaitTermination(300)
    assert sorted(seen) == list(range(30))


def test_real_time_mode_is_for_sparks_connector(
    spark: SparkSession, broker: NodeProcess, admin, new_topic, fill, tmp_path: Path
) -> None:
    """The connector writes what it reads without waiting for the end of a batch; Spark refuses Python sources."""
    source, sink = create_topic(admin, new_topic(), 1), create_topic(admin, new_topic(), 1)

    def start(kind: str) -> Any:
        reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
        frame = reader.options(subscribe=source, startingOffsets="earliest").load().select("key", "value")
        writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        writer = writer.option("topic", sink).option("checkpointLocation", str(tmp_path / kind))
        return writer.outputMode("update").trigger(realTime="5 minutes").start()

    with pytest.raises(StreamingQueryException, match="INPUT_STREAM_NOT_SUPPORTED"):
        start("millstream").awaitTermination(300)
    query = start("kafka")
    try:
        fill(source, range(10))
        # A batch lasts for five minutes, so these came while it was under way.
        wait_for(lambda: _end(broker, sink, 0), lambda end: end == 10, "the records", 180)
        assert query.lastProgress is None
    finally:
        query.stop()
