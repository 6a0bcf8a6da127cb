"""Reading telemetry from its topic and writing dead letters to theirs, through `format("millstream")`."""

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.moments import micros
from millstream.pipeline.job.ranges import FORMAT as RANGES
from millstream.pipeline.job.ranges import register

TELEMETRY_PARTITIONS = 6
OTHER_PARTITIONS = 1
"""Of topics that are made because they are not there."""

_FORMAT = "millstream"


def telemetry_stream(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Ranges of the log, for tasks that read it themselves."""
    return (
        spark.readStream.format(RANGES)
        .options(**register(spark))
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("subscribe", settings.topic)
        .option("startingOffsets", settings.starting_offsets)
        # Records that retention has deleted are gone; stopping would only lose more of them.
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", str(settings.max_offsets_per_trigger))
        .load()
    )


def telemetry_since(spark: SparkSession, settings: PipelineSettings, start: datetime) -> DataFrame:
    """Everything in the log from the first record at or after `start` by the log's own time."""
    return (
        spark.read.format(_FORMAT)
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("subscribe", settings.topic)
        .option("failOnDataLoss", "false")
        .option("startingTimestamp", str(max(micros(start) // 1000, 0)))
        # A partition with nothing that late has nothing to read.
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )


def send_to(settings: PipelineSettings, topic: str, letters: DataFrame) -> None:
    (
        letters.write.format(_FORMAT)
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("topic", topic)
        .mode("append")
        .save()
    )
