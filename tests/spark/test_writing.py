"""`df.write` and `df.writeStream` with `format("millstream")`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from support.node import NodeProcess

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def save(broker: NodeProcess) -> Callable[..., None]:
    def saved(frame: DataFrame, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("millstream").mode(mode)
        writer.option("kafka.bootstrap.servers", broker.bootstrap).options(**options).save()

    return saved


def stored(spark: SparkSession, broker: NodeProcess, topics: str) -> list[Any]:
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.option("subscribe", topics).option("includeHeaders", "true").load()
    text = "cast(key as string) key", "cast(value as string) value"
    return frame.selectExpr(*text, "topic", "partition", "headers").orderBy("topic", "value").collect()


def test_rows_say_where_they_go_and_what_they_carry(spark, broker, save, topic_with) -> None:
    one, other = topic_with(3), topic_with()
    rows = [
        (b"k1", "v1", one, 2, [("h", b"1"), ("i", None)]),
        (None, "v2", one, 0, []),
        (b"k3", None, one, None, None),
        (b"k4", "v4", other, None, None),
    ]
    columns = "key binary, value string, topic string, partition int, headers array<struct<key: string, value: binary>>"
    save(spark.createDataFrame(rows, columns))
    found = stored(spark, broker, f"{one},{other}")
    by_key = {row.key: row for row in found}
    assert (by_key["k1"].partition, by_key[None].partition, by_key["k4"].topic) == (2, 0, other)
    assert [(each.key, each.value) for each in by_key["k1"].headers] == [("h", b"1"), ("i", None)]
    assert by_key["k3"].value is None
    assert by_key[None].headers is None


def test_the_option_wins_over_the_column_and_other_columns_are_left_out(
    spark, broker, save, topic_with
) -> None:
    topic = topic_with(2)
    frame = spark.range(1000).selectExpr(
        "id", "'nowhere' topic", "cast(id as string) value", "cast(id % 9 as string) key"
    )
    save(frame, topic=topic, **{"kafka.compression.type": "zstd"})
    found = stored(spark, broker, topic)
    assert sorted(int(row.value) for row in found) == list(range(1000))
    partitions = {row.key: row.partition for row in found}
    assert all(partitions[row.key] == row.partition for row in found)


def test_a_stream_is_written_and_a_restart_goes_on(spark, broker, topic_with, fill, tmp_path: Path) -> None:
    source, sink = topic_with(2), topic_with(2)
    fill(source, range(50), 0)

    def run() -> None:
        reader = spark.readStream.format("millstream").option("kafka.bootstrap.servers", broker.bootstrap)
        frame = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
        writer = frame.select("key", "value").writeStream.format("millstream").option("topic", sink)
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    run()
    fill(source, range(50, 80), 1)
    run()
    assert sorted(int(row.value) for row in stored(spark, broker, sink)) == list(range(80))


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("cast(id as string) key", {"topic": "t"}, "column 'value' of type string or binary is required"),
        ("id value", {"topic": "t"}, "column 'value' is bigint; it must be string or binary"),
        ("'v' value", {}, "Set the option topic, or give the rows a column 'topic'"),
        ("'v' value,'x' partition", {"topic": "t"}, "column 'partition' is string; it must be int"),
        (
            "'v' value,array('x') headers",
            {"topic": "t"},
            r"must be array<struct<key: string, value: binary>>",
        ),
        ("'v' value,cast(null as string) topic", {}, "a row has no topic"),
        ("'v' value", {"topic": "t", "kafka.acks": "0"}, "the sink's guarantee needs all"),
        ("'v' value", {"topic": "t", "kafka.no.such": "1"}, 'No such configuration property: "no.such"'),
        ("'v' value,77 partition", {"topic": "IT"}, r"a row for .*-77 (was not stored|cannot be sent)"),
    ],
)
def test_what_cannot_be_written_is_said(spark, save, topic_with, columns, options, says) -> None:
    if options.get("topic") == "IT":
        options = {"topic": topic_with(), "kafka.topic.metadata.propagation.max.ms": "10"}
    with pytest.raises(PySparkException, match=says):
        save(
            spark.range(1).selectExpr(*columns.split(",", 1))
            if "array" not in columns
            else spark.range(1).selectExpr("'v' value", "array('x') headers"),
            **options,
        )


def test_a_topic_is_not_overwritten(spark, save) -> None:
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        save(spark.range(1).selectExpr("'v' value"), mode="overwrite", topic="t")
