"""Makes messages for the dead-letter topic from unusable records.

The value is JSON: `reason`, `field`, `message`, where the record is (`topic`, `partition`, `offset`, `timestamp`), its
bytes (`original_base64`, `original_bytes`, `truncated`), and for an array the first bad `element` and the number of bad
ones (`bad_elements`). Reason and position are also headers; the key is the record's, truncated if too long. A record
gives only one dead letter, so that it is not repeated for each bad element.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.job.judge import Reason, Verdict
from millstream.pipeline.stores.base import RejectedPoint
from millstream.pipeline.stores.local_frames import local_frame

MAX_ORIGINAL_BYTES = 512 * 1024
"""The longest part of a record in a dead letter: as base64 it stays under the megabyte that brokers accept by default.
The rest can be read at the record's position in the dead letter."""
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
    # Only the first row of an array carries the bytes and the key.
    origin = f.min_by(f.struct("key", "serializedValue", "timestamp"), order)
    records = rows.groupBy(*_POSITION).agg(
        first.alias("first"), origin.alias("origin"), f.count_if(bad).alias("bad_elements")
    )
    return _messages(
        records.where(f.col("bad_elements") > 0).select(*_POSITION, "first.*", "origin.*", "bad_elements")
    )


def rejected_letters(records: DataFrame, rejected: Sequence[RejectedPoint]) -> DataFrame:
    """The messages for points that the store refused; `records` are the records of their batch."""
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
        # Spark breaks base64 into lines, as in e-mail.
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
