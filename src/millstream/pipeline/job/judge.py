"""What a record is worth, in SQL expressions: valid, a sentinel, or bad for a named reason.

One list of faults says what a right record is. A record with a typed value is held against the part of it that types
leave open, which few comparisons decide; the others are held against all of it, and get the first that applies.
"""

import operator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, reduce
from itertools import groupby

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.declaration import Declaration
from millstream.pipeline.job.reasons import Limits, Reason, Verdict
from millstream.pipeline.job.text import member, type_of
from millstream.pipeline.moments import micros
from millstream.pipeline.stores.constants import constant

_LABELS = ("gpu_id", "device", "model_name", "container", "pod", "namespace")
"""Columns that may be numbers in a text."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason with the condition under which it is the one, and what to tell about it.

    A message may name columns that only a text has (`timestamp_text`, `value_text`, `body`).
    """

    condition: Column
    reason: Reason
    message: Column
    field: str = ""


def judged(records: DataFrame, limits: Limits, now: datetime) -> DataFrame:
    """Typed fields with a `verdict`: valid, sentinel, or odd for what has to be looked at in its text.

    A record is odd when it has no typed value, or any fault; `examined` says which. Only valid rows have a `time`.
    """
    timed = records.select("*", _clock(now))
    return _timed(timed.select("*", _typed_verdict(limits).alias("verdict")).drop("clock_us"))


def _clock(now: datetime) -> Column:
    return constant(micros(now), f.col("timestamp")).alias("clock_us")


@lru_cache(maxsize=8)
def _typed_verdict(limits: Limits) -> Column:
    """Kept, because it takes a fifth of a second to put together, call by call to the JVM."""
    faults = [_too_large(limits), *_record_faults(limits)]
    right = ~reduce(operator.or_, (f.coalesce(each.condition, f.lit(True)) for each in faults))
    return (
        f.when(right & _plausible(limits.declaration), str(Verdict.VALID))
        .when(right, str(Verdict.SENTINEL))
        .otherwise(str(Verdict.ODD))
    )


def examined(rows: DataFrame, limits: Limits, now: datetime) -> DataFrame:
    """Text fields with their final `verdict`, and `reason`, `field` and `message` of the bad ones."""
    fault = f.lit(None).cast("struct<reason: string, field: string, message: string>")
    for each in reversed([*_text_faults(limits), *_record_faults(limits)]):
        told = f.struct(
            f.lit(str(each.reason)).alias("reason"),
            f.lit(each.field).alias("field"),
            each.message.alias("message"),
        )
        fault = f.when(each.condition, told).otherwise(fault)
    verdict = (
        f.when(f.col("fault").isNotNull(), str(Verdict.BAD))
        .when(_plausible(limits.declaration), str(Verdict.VALID))
        .otherwise(str(Verdict.SENTINEL))
    )
    told_rows = (
        rows.select("*", _clock(now)).select("*", fault.alias("fault")).select("*", verdict.alias("verdict"))
    )
    kept = [name for name in rows.columns if name != "body"]
    return _timed(told_rows.select(*kept, "verdict", "fault.reason", "fault.field", "fault.message"))


def _timed(rows: DataFrame) -> DataFrame:
    """Only what is valid has a time, so that nothing else moves the watermark or marks a window."""
    return rows.withColumn("time", f.when(f.col("verdict") == str(Verdict.VALID), f.col("time")))


def _too_large(limits: Limits) -> Fault:
    return Fault(
        f.col("size_bytes") > limits.max_record_bytes,
        Reason.TOO_LARGE,
        f.format_string(
            f"the record has %d bytes, {limits.max_record_bytes} are allowed", f.col("size_bytes")
        ),
    )


def _text_faults(limits: Limits) -> list[Fault]:
    """What only a text can have wrong; a typed value has passed it."""
    body, fields = f.col("body"), limits.declaration.fields
    return [
        Fault(f.col("size_bytes") == 0, Reason.EMPTY, f.lit("the record has no value")),
        _too_large(limits),
        Fault(f.col("is_blank"), Reason.EMPTY, f.lit("the record holds only blanks")),
        Fault(f.col("is_empty_array"), Reason.EMPTY, f.lit("the array holds no record")),
        Fault(body.isNull(), Reason.MALFORMED_JSON, f.lit("the value is not one JSON document in UTF-8")),
        Fault(
            member("body", fields["metric"][0], "variant").isNull()
            & ~f.schema_of_variant(body).startswith("OBJECT"),
            Reason.NOT_AN_OBJECT,
            f.concat(f.lit("a JSON object was expected, not "), f.lower(f.schema_of_variant(body))),
        ),
        _missing(fields["time"][0], "timestamp_text"),
        _missing(fields["metric"][0], "metric"),
        _missing(fields["uuid"][0], "uuid"),
        _missing(fields["value"][0], "value_text"),
        *_type_faults(limits.declaration),
        _infinite(fields["value"][0]),
    ]  # fmt: skip


def _record_faults(limits: Limits) -> list[Fault]:
    """What any record can have wrong, whatever it was read from."""
    declared = limits.declaration
    value_name = declared.fields["value"][0]
    metric, number = f.col("metric"), f.col("value_number")
    unknown = f.concat(f.lit("unknown metric "), f.left(metric, f.lit(80)))
    no_number = f.concat(
        f.lit(f"wrong type of {value_name}: a number was expected, not "),
        f.lower(type_of("body", value_name)),
    )
    return [
        _missing(declared.fields["metric"][0], "metric"),
        _missing(declared.fields["uuid"][0], "uuid"),
        *_timestamp_faults(limits),
        Fault(~metric.isin(*declared.metrics), Reason.UNKNOWN_METRIC, unknown, declared.fields["metric"][0]),
        Fault(number.isNull(), Reason.WRONG_TYPE, no_number, value_name),
        Fault(~_plausible(declared) & ~_sentinel(declared), Reason.VALUE_OUT_OF_RANGE, _beyond(), value_name),
    ]


def _missing(field: str, column: str) -> Fault:
    text = f.col(column)
    return Fault(text.isNull() | (text == ""), Reason.MISSING_FIELD, f.lit(f"missing field {field}"), field)


def _timestamp_faults(limits: Limits) -> list[Fault]:
    time, logged = f.unix_micros("time"), f.unix_micros("timestamp")
    earliest = f.lit(micros(limits.earliest))
    # A record without a time of its own in the log, or with an absurd one, is held against the clock.
    clock = f.col("clock_us")
    written = f.when(logged >= earliest, f.least(logged, clock)).otherwise(clock)
    ahead_seconds = int(limits.max_ahead.total_seconds())
    shown, name = f.col("timestamp_text"), limits.declaration.fields["time"][0]
    return [
        Fault(
            time.isNull(), Reason.BAD_TIMESTAMP,
            f.concat(f.lit(f"{name} is not RFC 3339 such as 2025-07-18T20:42:34Z: "), f.left(shown, f.lit(80))),
            name,
        ),
        Fault(
            time < earliest, Reason.TIMESTAMP_OUT_OF_RANGE,
            f.concat(f.lit(f"{name} "), shown, f.lit(f" is before {limits.earliest:%Y-%m-%dT%H:%M:%SZ}")),
            name,
        ),
        Fault(
            time > written + f.lit(ahead_seconds * 1_000_000), Reason.TIMESTAMP_OUT_OF_RANGE,
            f.concat(f.lit(f"{name} "), shown, f.lit(f" is more than {ahead_seconds} s ahead of the record")),
            name,
        ),
    ]  # fmt: skip


def _type_faults(declared: Declaration) -> list[Fault]:
    def wrong(path: str, doubt: Column) -> Fault:
        kind = type_of("body", path)
        message = f.concat(f.lit(f"wrong type of {path}: a string was expected, not "), f.lower(kind))
        return Fault(doubt & ~kind.isin("STRING", "VOID"), Reason.WRONG_TYPE, message, path)

    names = [path for column in ("metric", "uuid", "hostname") for path in declared.fields.get(column, ())]
    labels = [(path, f.col(column)) for column in _LABELS for path in declared.fields.get(column, ())[:1]]
    return [
        *(wrong(path, f.lit(True)) for path in names),
        *(wrong(path, text.startswith("{") | text.startswith("[")) for path, text in labels),
    ]


def _infinite(name: str) -> Fault:
    condition = f.col("value_text").isin("Infinity", "-Infinity") & (type_of("body", name) != "STRING")
    return Fault(condition, Reason.VALUE_OUT_OF_RANGE, _beyond(), name)


def _beyond() -> Column:
    text = f.left(f.col("value_text"), f.lit(40))
    return f.concat(f.lit("value "), text, f.lit(" cannot be a measurement of "), f.col("metric"))


def _plausible(declared: Declaration) -> Column:
    """Whether the value can be a measurement of its metric."""
    by_range = sorted((metric.minimum, metric.maximum, name) for name, metric in declared.metrics.items())
    plausible = f.lit(False)
    for (minimum, maximum), metrics in groupby(by_range, key=lambda each: each[:2]):
        within = f.col("value_number").between(minimum, maximum)
        plausible = plausible | (f.col("metric").isin(*(name for _, _, name in metrics)) & within)
    return plausible


def _sentinel(declared: Declaration) -> Column:
    """Whether a value says "no value", unless it is plausible."""
    inside = f.lit(False)
    for low, high in declared.sentinels:
        inside = inside | f.col("value_number").between(low, high)
    return inside
