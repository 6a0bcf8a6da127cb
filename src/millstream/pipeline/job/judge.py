"""What each parsed row is worth, in SQL expressions: valid, a sentinel, or bad for a named reason.

Most records are plainly right, which few comparisons tell: a uuid of DCGM's kind can only have been a string, a known
metric's name too. Only the others are held against every fault that there is, types included.
"""

from dataclasses import dataclass
from itertools import groupby

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.job.parse import member, type_of
from millstream.pipeline.job.reasons import Limits, Reason, Verdict
from millstream.pipeline.metrics import METRICS, SENTINEL_RANGES

_LABELS = ("gpu_id", "device", "model_name", "container", "pod", "namespace")


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason with the condition under which it is the one, and what to tell about it."""

    condition: Column
    reason: Reason
    message: Column
    field: str = ""


def sifted(rows: DataFrame, limits: Limits) -> DataFrame:
    """All parsed columns and a `verdict`: valid, sentinel, or doubtful for what `examined` must look at.

    Only valid rows have a `time`, so that nothing else moves a watermark; doubtful ones have it as `doubtful_time`.
    """
    is_plain = f.coalesce(_plainly_right(limits), f.lit(False))
    verdict = (
        f.when(is_plain & _plausible(), str(Verdict.VALID))
        .when(is_plain & _sentinel(), str(Verdict.SENTINEL))
        .otherwise(str(Verdict.DOUBTFUL))
    )
    decided = rows.select("*", verdict.alias("verdict"))
    return decided.select(
        *(name for name in decided.columns if name != "time"),
        f.when(f.col("verdict") == str(Verdict.VALID), f.col("time")).alias("time"),
        f.when(f.col("verdict") == str(Verdict.DOUBTFUL), f.col("time")).alias("doubtful_time"),
    )


def unjudged(rows: DataFrame) -> DataFrame:
    """Parsed rows as `examined` takes them, all of them doubtful."""
    return rows.select(
        *(name for name in rows.columns if name != "time"),
        f.lit(str(Verdict.DOUBTFUL)).alias("verdict"),
        f.lit(None).cast("timestamp").alias("time"),
        f.col("time").alias("doubtful_time"),
    )


def examined(doubtful: DataFrame, limits: Limits) -> DataFrame:
    """Doubtful rows with their final `verdict`, and `reason`, `field` and `message` of the bad ones."""
    fault = f.lit(None).cast("struct<reason: string, field: string, message: string>")
    for each in reversed(_faults(limits)):
        told = f.struct(
            f.lit(str(each.reason)).alias("reason"),
            f.lit(each.field).alias("field"),
            each.message.alias("message"),
        )
        fault = f.when(each.condition, told).otherwise(fault)
    verdict = (
        f.when(f.col("fault").isNotNull(), str(Verdict.BAD))
        .when(_plausible(), str(Verdict.VALID))
        .otherwise(str(Verdict.SENTINEL))
    )
    rows = doubtful.drop("time", "verdict").withColumnRenamed("doubtful_time", "time")
    told_rows = rows.select("*", fault.alias("fault")).select("*", verdict.alias("verdict"))
    return told_rows.select(
        *(name for name in rows.columns if name not in {"time", "body"}),
        "verdict",
        f.col("fault.reason").alias("reason"),
        f.col("fault.field").alias("field"),
        f.col("fault.message").alias("message"),
        f.when(f.col("verdict") == str(Verdict.VALID), f.col("time")).alias("time"),
    )


def _now() -> Column:
    """The clock, asked for each row. Spark makes a constant of its own `current_timestamp()`, a new one for each
    micro-batch, and then compiles everything around it again."""
    return f.timestamp_millis(f.expr("CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT)"))


def _plainly_right(limits: Limits) -> Column:
    """True only for rows that none of the faults applies to, their value aside; the reverse need not hold."""
    labels = f.concat_ws("", *_LABELS)
    return (
        f.col("uuid").startswith("GPU-")
        & f.col("time").between(f.lit(limits.earliest), f.least(f.col("timestamp"), _now()))
        & f.col("hostname").rlike("^[a-zA-Z][^{]")
        & ~f.col("hostname").isin("true", "false")
        & ~labels.contains("{")
        & ~labels.contains("[")
    )


def _faults(limits: Limits) -> list[Fault]:
    """In the order in which they are looked for; a row has the first that applies."""
    body = f.col("body")
    return [
        Fault(f.col("size_bytes") == 0, Reason.EMPTY, f.lit("the record has no value")),
        Fault(
            f.col("size_bytes") > limits.max_record_bytes,
            Reason.TOO_LARGE,
            f.format_string(
                f"the record has %d bytes, {limits.max_record_bytes} are allowed", f.col("size_bytes")
            ),
        ),
        Fault(f.col("is_blank"), Reason.EMPTY, f.lit("the record holds only blanks")),
        Fault(f.col("is_empty_array"), Reason.EMPTY, f.lit("the array holds no record")),
        Fault(body.isNull(), Reason.MALFORMED_JSON, f.lit("the value is not one JSON document in UTF-8")),
        Fault(
            member("body", "metric_name", "variant").isNull() & ~f.schema_of_variant(body).startswith("OBJECT"),
            Reason.NOT_AN_OBJECT,
            f.concat(f.lit("a JSON object was expected, not "), f.lower(f.schema_of_variant(body))),
        ),
        *(_missing(field) for field in ("timestamp", "metric_name", "uuid", "value")),
        *_timestamp_faults(limits),
        *_type_faults(),
        *_value_faults(),
    ]  # fmt: skip


def _missing(field: str) -> Fault:
    column = {"timestamp": "timestamp_text", "metric_name": "metric", "uuid": "uuid", "value": "value_text"}
    text = f.col(column[field])
    return Fault(text.isNull() | (text == ""), Reason.MISSING_FIELD, f.lit(f"missing field {field}"), field)


def _timestamp_faults(limits: Limits) -> list[Fault]:
    time = f.col("time")
    earliest = f.lit(limits.earliest)
    # A record without a time of its own in the log, or with an absurd one, is held against the clock.
    now = _now()
    logged = f.when(f.col("timestamp") >= earliest, f.least(f.col("timestamp"), now)).otherwise(now)
    ahead_seconds = int(limits.max_ahead.total_seconds())
    shown = f.col("timestamp_text")
    return [
        Fault(
            time.isNull(), Reason.BAD_TIMESTAMP,
            f.concat(f.lit("timestamp is not RFC 3339 such as 2025-07-18T20:42:34Z: "), f.left(shown, f.lit(80))),
            "timestamp",
        ),
        Fault(
            time < earliest, Reason.TIMESTAMP_OUT_OF_RANGE,
            f.concat(f.lit("timestamp "), shown, f.lit(f" is before {limits.earliest:%Y-%m-%dT%H:%M:%SZ}")),
            "timestamp",
        ),
        Fault(
            time > logged + f.make_dt_interval(secs=f.lit(ahead_seconds)), Reason.TIMESTAMP_OUT_OF_RANGE,
            f.concat(f.lit("timestamp "), shown, f.lit(f" is more than {ahead_seconds} s ahead of the record")),
            "timestamp",
        ),
    ]  # fmt: skip


def _type_faults() -> list[Fault]:
    def wrong(field: str, path: str, doubt: Column) -> Fault:
        kind = type_of("body", path)
        message = f.concat(f.lit(f"wrong type of {field}: a string was expected, not "), f.lower(kind))
        return Fault(doubt & (kind != "STRING"), Reason.WRONG_TYPE, message, field)

    uuid, metric, host = f.col("uuid"), f.col("metric"), f.col("hostname")
    doubtful_host = ~host.rlike("^[A-Za-z]") | host.isin("true", "false")
    faults = [
        wrong("metric_name", "metric_name", ~metric.isin(*METRICS)),
        wrong("uuid", "uuid", ~uuid.startswith("GPU-") & ~uuid.startswith("MIG-")),
        wrong("Hostname", "Hostname", doubtful_host),
        wrong("hostname", "hostname", doubtful_host),
    ]
    for label in _LABELS:
        field, text = "modelName" if label == "model_name" else label, f.col(label)
        faults.append(wrong(field, field, text.startswith("{") | text.startswith("[")))
    return faults


def _value_faults() -> list[Fault]:
    metric, number, text = f.col("metric"), f.col("value_number"), f.col("value_text")
    kind = type_of("body", "value")
    is_infinite = text.isin("Infinity", "-Infinity") & (kind != "STRING")
    beyond = f.concat(f.lit("value "), f.left(text, f.lit(40)), f.lit(" cannot be a measurement of "), metric)
    return [
        Fault(
            ~metric.isin(*METRICS), Reason.UNKNOWN_METRIC,
            f.concat(f.lit("unknown metric "), f.left(metric, f.lit(80))), "metric_name",
        ),
        Fault(number.isNull() & is_infinite, Reason.VALUE_OUT_OF_RANGE, beyond, "value"),
        Fault(
            number.isNull(), Reason.WRONG_TYPE,
            f.concat(f.lit("wrong type of value: a number was expected, not "), f.lower(kind)), "value",
        ),
        Fault(
            ~_plausible() & ~_sentinel(), Reason.VALUE_OUT_OF_RANGE, beyond, "value"
        ),
    ]  # fmt: skip


def _plausible() -> Column:
    """Whether the value can be a measurement of its metric; as `metrics.judge`."""
    by_range = sorted(METRICS.values(), key=lambda metric: (metric.minimum, metric.maximum))
    plausible = f.lit(False)
    for (minimum, maximum), metrics in groupby(by_range, key=lambda metric: (metric.minimum, metric.maximum)):
        names = [metric.name for metric in metrics]
        within = f.col("value_number").between(minimum, maximum)
        plausible = plausible | (f.col("metric").isin(*names) & within)
    return plausible


def _sentinel() -> Column:
    """Whether DCGM says "no value" with this one, unless it is plausible."""
    inside = f.lit(False)
    for low, high in SENTINEL_RANGES:
        inside = inside | f.col("value_number").between(low, high)
    return inside
