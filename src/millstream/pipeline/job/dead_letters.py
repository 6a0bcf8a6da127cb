"""Records that cannot be used, as messages for the dead-letter topic.

The value is JSON: `reason`, `field`, `message`, where the record is (`topic`, `partition`, `offset`, `timestamp`), its
bytes (`original_base64`, `original_bytes`, `truncated`), and of an array the first bad `element` and how many there
are (`bad_elements`). Reason and position are headers too; the key is the record's, as far as it fits. A record gives
one dead letter, or it would be repeated as often as it has bad elements.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.job.judge import Reason, Verdict
from millstream.pipeline.stores.base import RejectedPoint
from millstream.pipeline.stores.local_frames import local_frame

MAX_ORIGINAL_BYTES = 512 * 1024
"""What a dead letter carries of a record: as base64 it stays under the megabyte that brokers take by default. The
rest is where the dead letter says."""
MAX_KEY_BYTES = 64 * 1024
_LONGEST_NAME = 80

_POSITION = ("topic", "partition", "offset")
_REJECTED = (
    "topic string, partition int, offset bigint, element int, reason string, field string, message string"
)


def dead_letters(rows: DataFrame) -> DataFrame:
    """`key`, `value` and `headers` of one message per bad record, from judged rows of text."""
    bad, order = f.col("verdict") == str(Verdict.BAD), f.coalesce(f.col("element"), f.lit(0))
    first = f.min_by(f.when(bad, f.struct("fault.*", "element")), f.when(bad, order))
    # Of an array the first row alone has the bytes and the key.
    origin = f.min_by(f.struct("key", "serializedValue", "timestamp"), order)
    records = rows.groupBy(*_POSITION).agg(
        first.alias("first"), origin.alias("origin"), f.count_if(bad).alias("bad_elements")
    )
    return _messages(
        records.where(f.col("bad_elements") > 0).select(*_POSITION, "first.*", "origin.*", "bad_elements")
    )


def rejected_letters(records: DataFrame, rejected: Sequence[RejectedPoint]) -> DataFrame:
    """The messages for points that the store refused; `records` are those of the batch they came in."""
    topic = f.first("topic").alias("topic")
    refused = local_frame(
        records.sparkSession,
        _REJECTED,
        [
            (None, point.source_partition, point.source_offset, None, str(Reason.REJECTED_BY_STORE), "",
             f"{point.metric} of {point.uuid[:_LONGEST_NAME]} at {point.time:%Y-%m-%dT%H:%M:%SZ}: {point.reason}")
            for point in rejected
        ],
    ).drop("topic").dropDuplicates(["partition", "offset"])  # fmt: skip
    originals = records.groupBy("partition", "offset").agg(
        topic, *(f.first(name).alias(name) for name in ("key", "serializedValue", "timestamp"))
    )
    return _messages(
        refused.join(originals, ["partition", "offset"]).withColumn("bad_elements", f.lit(0).cast("bigint"))
    )


def _messages(records: DataFrame) -> DataFrame:
    original = f.coalesce(f.col("serializedValue"), f.lit(b""))
    size = f.octet_length(original)
    kept = f.substring(original, 1, MAX_ORIGINAL_BYTES)
    document = f.struct(
        "reason",
        "field",
        "message",
        *_POSITION,
        f.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX").alias("timestamp"),
        "element",
        f.when(f.col("element").isNotNull(), f.col("bad_elements")).alias("bad_elements"),
        size.alias("original_bytes"),
        (size > MAX_ORIGINAL_BYTES).alias("truncated"),
        # Spark breaks base64 into lines as e-mail does.
        f.regexp_replace(f.base64(kept), "\\s", "").alias("original_base64"),
    )
    headers = [
        f.struct(f.lit(name).alias("key"), f.col(name).cast("string").cast("binary").alias("value"))
        for name in ("reason", "field", *_POSITION)
    ]
    key = f.substring("key", 1, MAX_KEY_BYTES).alias("key")
    return records.select(
        key, f.to_json(document).cast("binary").alias("value"), f.array(*headers).alias("headers")
    )
