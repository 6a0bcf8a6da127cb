"""Judges records in SQL: a record is valid, a sentinel, or bad with the first fault that applies.

Telemetry comes from the typed source with a column for each field (`typed_fields`). A record without a typed value (an
envelope, an array, a number in quotes, a mistake) is read from its text by `text.py`. Both share one list of faults. A
record without a fault is valid if its value can be a measurement of its metric, and a sentinel if the value means "no
value". `points_of` turns valid rows into points of a store.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from millstream.pipeline.declaration import DCGM, LABELS, Declaration
from millstream.pipeline.moments import MINUTE_US, micros
from millstream.pipeline.stores.local_frames import constant
from millstream.pipeline.stores.rows import POINTS


class Reason(StrEnum):
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    MALFORMED_JSON = "malformed_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    TEXT_TOO_LONG = "text_too_long"
    BAD_TIMESTAMP = "bad_timestamp"
    TIMESTAMP_OUT_OF_RANGE = "timestamp_out_of_range"
    UNKNOWN_METRIC = "unknown_metric"
    VALUE_OUT_OF_RANGE = "value_out_of_range"
    REJECTED_BY_STORE = "rejected_by_store"


class Verdict(StrEnum):
    """How a record is treated: stored, dropped because DCGM had no value, or sent to the dead letters."""

    VALID = "valid"
    SENTINEL = "sentinel"
    BAD = "bad"


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """The limits of a valid record. Its time is compared with its timestamp in the log, not with the reader's clock, so
    that a record is judged the same whenever it is read."""

    max_record_bytes: int = 512 * 1024
    earliest: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    max_ahead: timedelta = timedelta(days=1)
    declaration: Declaration = DCGM


LONGEST_TEXT_BYTES = 16 * 1024
"""The limit for a name or label: they appear in keys, events and dead letters, which have to fit into a message."""

RECORD_TYPES = (
    "key binary, serializedValue binary, topic string, partition int, offset bigint, timestamp timestamp"
)
"""The columns of a record that are kept beside its fields."""
RECORD_COLUMNS = tuple(column.split()[0] for column in RECORD_TYPES.split(", "))
READING = "struct<reason: string, field: string, message: string>"
"""The reason why the fields of a record could not be read."""


def record_type(declared: Declaration = DCGM) -> str:
    """The Spark type of a record."""
    kinds = {
        **dict.fromkeys(declared.members(), "string"),
        **dict.fromkeys(declared.maps(), "map<string, string>"),
    }
    kinds |= {declared.fields["time"][0]: "timestamp", declared.fields["value"][0]: "double"}
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in kinds.items())}>"


def source_schema(declared: Declaration = DCGM) -> str:
    """The columns of the read."""
    return f"value {record_type(declared)}, {RECORD_TYPES}"


def typed_fields(records: DataFrame, limits: Limits) -> DataFrame:
    """RECORD_COLUMNS and the fields, which may be null. `reading` is set if the record has no usable typed value."""
    declared = limits.declaration
    fields = {name: _first(declared.fields.get(name, ()), declared) for name in ("metric", "uuid", *LABELS)}
    if declared.nested_gpu_id:
        gpu_id = f.col("value.gpu_id")
        names_gpu = ((gpu_id >= "A") & (gpu_id < "[")) | ((gpu_id >= "a") & (gpu_id < "{"))
        fields["uuid"] = f.coalesce(f.nullif(fields["uuid"], f.lit("")), f.when(names_gpu, gpu_id))
        fields["gpu_id"] = f.when(names_gpu, f.col("value.labels")["gpu"]).otherwise(gpu_id)
    fits = f"value IS NOT NULL AND octet_length(serializedValue) <= {limits.max_record_bytes}"
    return records.select(
        *RECORD_COLUMNS,
        f.lit(None).cast("int").alias("element"),
        f.col(f"value.`{declared.fields['time'][0]}`").alias("time"),
        f.col(f"value.`{declared.fields['value'][0]}`").alias("value_number"),
        *(column.alias(name) for name, column in fields.items()),
        f.expr(f"IF({fits}, NULL, struct('' AS reason, '' AS field, '' AS message))").alias("reading"),
    )


def _first(paths: Sequence[str], declared: Declaration) -> Column:
    """The first non-null value of `paths`; an object as a whole becomes its JSON."""
    found: list[Column] = []
    for path in paths:
        member, _, label = path.partition(".")
        column = f.col(f"value.`{member}`")
        if label:
            column = column[label]
        elif member in declared.maps():
            column = f.to_json(column)
        found.append(column)
    return f.coalesce(*found) if found else f.lit(None).cast("string")


_TIME = "date_format(time, \"yyyy-MM-dd'T'HH:mm:ssXXX\")"


class Fault(NamedTuple):
    """A fault of a record: its SQL condition, and the reason, field and message. The message is SQL too."""

    condition: str
    reason: Reason
    field: str
    message: str


def judged(rows: DataFrame, limits: Limits, now: datetime) -> DataFrame:
    """Rows of `typed_fields` or `text_fields`, with a `verdict`, the `minute` of valid and the `fault` of bad ones."""
    # For a record that fits no type the source gives no reason; `text.py` finds it in the text.
    cases = "".join(
        f" WHEN {fault.condition} THEN struct('{fault.reason}' AS reason, {_quoted(fault.field)} AS field, "
        f"{fault.message} AS message)"
        for fault in _faults(limits)
    )
    verdict = (
        f"CASE WHEN fault IS NOT NULL THEN '{Verdict.BAD}' WHEN {_PLAUSIBLE} THEN '{Verdict.VALID}' "
        f"ELSE '{Verdict.SENTINEL}' END"
    )
    return (
        rows.selectExpr(
            "*",
            f"{constant(micros(now), 'timestamp')} AS clock_us",
            f"{_ranges(limits.declaration)}[metric] AS range",
        )
        .selectExpr("*", f"CASE WHEN reading IS NOT NULL THEN reading{cases} END AS fault")
        .selectExpr("*", f"{verdict} AS verdict")
        .selectExpr(
            "* EXCEPT (clock_us, range, reading)",
            f"IF(verdict = '{Verdict.VALID}', floor(unix_micros(time) / {MINUTE_US}), NULL) AS minute",
        )
    )


_PLAUSIBLE = "value_number BETWEEN range.minimum AND range.maximum"


def _faults(limits: Limits) -> Iterator[Fault]:
    fields = {name: paths[0] for name, paths in limits.declaration.fields.items()}
    earliest, ahead_s = limits.earliest, int(limits.max_ahead.total_seconds())
    for name, column in (("time", "time"), ("metric", "metric"), ("uuid", "uuid"), ("value", "value_number")):
        empty = f" OR {column} = ''" if name == column != "time" else ""
        told = _quoted(f"missing field {fields[name]}")
        yield Fault(f"{column} IS NULL{empty}", Reason.MISSING_FIELD, fields[name], told)
    for name in ("uuid", *LABELS):
        if name in fields:
            size = f"octet_length({name})"
            told = f"concat({_quoted(fields[name] + ' has ')}, {size}, ' bytes, {LONGEST_TEXT_BYTES} are allowed')"
            yield Fault(f"{size} > {LONGEST_TEXT_BYTES}", Reason.TEXT_TOO_LONG, fields[name], told)
    shown = f"concat({_quoted(fields['time'] + ' ')}, {_TIME}, "
    yield Fault(
        f"unix_micros(time) < {micros(earliest)}", Reason.TIMESTAMP_OUT_OF_RANGE, fields["time"],
        f"{shown}' is before {earliest:%Y-%m-%dT%H:%M:%SZ}')",
    )  # fmt: skip
    # A record without a log time, or with an absurd one, is compared with the clock.
    logged = "unix_micros(timestamp)"
    written = f"IF({logged} >= {micros(earliest)}, least({logged}, clock_us), clock_us)"
    yield Fault(
        f"unix_micros(time) > {written} + {ahead_s * 1_000_000}L", Reason.TIMESTAMP_OUT_OF_RANGE, fields["time"],
        f"{shown}' is more than {ahead_s} s ahead of the record')",
    )  # fmt: skip
    yield Fault(
        "range IS NULL",
        Reason.UNKNOWN_METRIC,
        fields["metric"],
        "concat('unknown metric ', left(metric, 80))",
    )
    sentinel = "".join(
        f" OR value_number BETWEEN {low!r}D AND {high!r}D" for low, high in limits.declaration.sentinels
    )
    yield Fault(
        f"NOT ({_PLAUSIBLE}{sentinel})", Reason.VALUE_OUT_OF_RANGE, fields["value"],
        "concat('value ', value_number, ' cannot be a measurement of ', metric)",
    )  # fmt: skip


def _ranges(declared: Declaration) -> str:
    """The allowed values of each metric, as a map."""
    entries = (
        f"{_quoted(name)}, struct({float(metric.minimum)!r}D AS minimum, {float(metric.maximum)!r}D AS maximum)"
        for name, metric in declared.metrics.items()
    )
    return f"map({', '.join(entries)})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# Columns of a parsed row that have other names in the store.
_SOURCES = {"value": "value_number", "source_partition": "partition", "source_offset": "offset"}


def points_of(rows: DataFrame) -> DataFrame:
    """The valid rows as points, with `element` to distinguish records of one array."""

    def column(name: str, kind: str) -> str:
        source = f"CAST({_SOURCES.get(name, name)} AS {kind})"
        return f"coalesce({source}, '') AS {name}" if kind == "string" else f"{source} AS {name}"

    return rows.where(f"verdict = '{Verdict.VALID}'").selectExpr(
        *(column(name, kind) for name, kind in POINTS.columns), "coalesce(element, 0) AS element"
    )


def without_duplicates(points: DataFrame) -> DataFrame:
    """Keeps the last point in the log of each identity; the store applies the same rule between batches."""
    newest_first = Window.partitionBy(*POINTS.identity).orderBy(
        f.desc("source_partition"), f.desc("source_offset"), f.desc("element")
    )
    numbered = points.withColumn("copy", f.row_number().over(newest_first))
    return numbered.filter(f.col("copy") == 1).select(*POINTS.names)
