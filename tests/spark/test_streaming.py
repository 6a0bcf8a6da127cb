"""`spark.readStream.format("millstream")`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from millstream.spark import lag_of
from support.node import NodeProcess
from support.topics import create_topic
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("spark")

PATIENCE_S = 300


class Stream:
    """A query that collects the numbers it reads, over one checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
        self.batches: list[list[int]] = []
        self._spark, self._bootstrap, self._checkpoint = spark, bootstrap, checkpoint
        self.query: StreamingQuery | None = None

    @property
    def numbers(self) -> list[int]:
        return sorted(number for batch in self.batches for number in batch)

    def start(self, available_now: bool = True, **options: Any) -> StreamingQuery:
        def collect(frame, _) -> None:
            rows = frame.selectExpr("cast(value as string) value").collect()
            self.batches.append([int(row.value) for row in rows])

        reader = self._spark.readStream.format("millstream").options(**options)
        frame = reader.option("kafka.bootstrap.servers", self._bootstrap).load()
        writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(self._checkpoint))
        trigger = {"availableNow": True} if available_now else {"processingTime": "100 milliseconds"}
        self.query = writer.trigger(**trigger).start()
        return self.query

    def run(self, **options: Any) -> StreamingQuery:
        """Until all that is there now has been read."""
        query = self.start(**options)
        assert query.awaitTermination(PATIENCE_S)
        return query

    def wait(self, expected: list[int]) -> None:
        def look() -> list[int]:
            assert self.query is not None
            if self.query.exception() is not None:
                raise AssertionError(str(self.query.exception()))
            return self.numbers

        wait_for(look, lambda seen: seen == expected, "the numbers read", PATIENCE_S)


@pytest.fixture
def stream(spark: SparkSession, broker: NodeProcess, tmp_path: Path):
    made = Stream(spark, broker.bootstrap, tmp_path / "checkpoint")
    yield made
    if made.query is not None:
        made.query.stop()


def test_what_is_there_is_read_in_limited_steps_and_a_restart_goes_on(
    stream: Stream, topic_with: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = topic_with(2)
    fill(topic, range(60), 0)
    fill(topic, range(60, 90), 1)
    query = stream.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert stream.numbers == list(range(90))
    assert [len(batch) for batch in stream.batches] == [39, 39, 12]
    lags = [lag_of(progress).total for progress in query.recentProgress if progress["numInputRows"]]
    assert lags == [51, 12, 0]
    assert query.lastProgress["sources"][0]["endOffset"] == f'{{"{topic}": {{"0": 60, "1": 30}}}}'
    fill(topic, range(90, 100), 1)
    stream.run(subscribe=topic, startingOffsets="earliest")
    assert stream.numbers == list(range(100))


def test_topics_and_partitions_that_appear_are_read_from_their_beginning(
    stream: Stream, admin, new_topic: Callable[[], str], fill: Callable[..., None]
) -> None:
    stem = new_topic()
    first = create_topic(admin, f"{stem}.a")
    fill(first, range(10))
    stream.start(available_now=False, subscribePattern=f"{stem}[.].*", startingOffsets="earliest")
    stream.wait(list(range(10)))
    admin.create_partitions([NewPartitions(first, 2)])[first].result(90)
    fill(first, range(10, 20), 1)
    stream.wait(list(range(20)))
    second = create_topic(admin, f"{stem}.b")
    fill(second, range(20, 30))
    stream.wait(list(range(30)))


def test_a_stream_starts_at_the_end_and_before_its_topic_exists(
    stream: Stream, admin, new_topic: Callable[[], str], topic_with, fill: Callable[..., None]
) -> None:
    old, later = topic_with(), new_topic()
    fill(old, range(5))
    stream.start(available_now=False, subscribe=f"{old},{later}")
    wait_for(lambda: stream.query.lastProgress, bool, "the first trigger", PATIENCE_S)
    fill(old, range(5, 10))
    create_topic(admin, later)
    fill(later, range(10, 15))
    stream.wait(list(range(5, 15)))


def test_deleted_data_fails_the_query_or_is_passed_over_as_the_option_says(
    stream: Stream, admin, topic_with: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = topic_with()
    fill(topic, range(10))
    stream.run(subscribe=topic, startingOffsets="earliest")
    fill(topic, range(10, 20))
    admin.delete_records([Place(topic, 0, 15)])[Place(topic, 0)].result(90)
    with pytest.raises(StreamingQueryException, match=r"offsets 10 to 14 of .* are gone: they were deleted"):
        stream.run(subscribe=topic)
    assert stream.numbers == list(range(10))
    stream.run(subscribe=topic, failOnDataLoss="false")
    assert stream.numbers == [*range(10), *range(15, 20)]


# Rarer than deleted records, and the source's own reading of it is tested without Spark.
@pytest.mark.long
def test_a_deleted_topic_fails_the_query_or_is_passed_over_as_the_option_says(
    stream: Stream, admin, topic_with: Callable[..., str], fill: Callable[..., None]
) -> None:
    gone, kept = topic_with(), topic_with()
    fill(gone, range(5))
    fill(kept, range(5, 10))
    both = f"{gone},{kept}"
    stream.run(subscribe=both, startingOffsets="earliest")
    admin.delete_topics([gone])[gone].result(90)
    fill(kept, range(10, 15))
    with pytest.raises(StreamingQueryException, match="was read before and does not exist any more"):
        stream.run(subscribe=both)
    stream.run(subscribe=both, failOnDataLoss="false")
    assert stream.numbers == list(range(15))


@pytest.mark.parametrize("most", [12, pytest.param(None, marks=pytest.mark.long)])
def test_too_few_records_are_waited_for(
    stream: Stream, topic_with: Callable[..., str], fill: Callable[..., None], most: int | None
) -> None:
    topic = topic_with()
    fill(topic, range(5))
    limits: dict[str, Any] = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "1h"}
    if most is not None:
        limits["maxOffsetsPerTrigger"] = most
    stream.start(available_now=False, subscribe=topic, startingOffsets="earliest", **limits)
    stream.wait(list(range(5)))
    fill(topic, range(5, 8))
    fill(topic, range(8, 20))
    wait_for(lambda: len(stream.batches), lambda count: count == 2, "a second micro-batch", PATIENCE_S)
    assert 10 <= len(stream.batches[1]) <= (most or 15)


def test_finished_offsets_are_committed_to_a_group(
    spark: SparkSession, broker: NodeProcess, topic_with, fill, tmp_path: Path
) -> None:
    topic = topic_with(2)
    fill(topic, range(10), 0)
    fill(topic, range(3), 1)
    group = f"spark-{topic}"

    def run() -> None:
        reader = spark.readStream.format("millstream").option("kafka.bootstrap.servers", broker.bootstrap)
        reader = reader.option("kafka.group.id", group).option("commitOffsets", "true")
        frame = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    def committed() -> list[int]:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        try:
            return [each.offset for each in consumer.committed([Place(topic, n) for n in (0, 1)], 90)]
        finally:
            consumer.close()

    run()
    assert committed() == [10, 3]
    fill(topic, range(5), 1)
    run()
    assert committed() == [10, 8]
