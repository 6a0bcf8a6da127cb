"""What a record is worth, as columns: valid, a sentinel, or bad with the first fault that applies.

There is one list of faults, for records with a typed value and for those that were read from their text. What has no
fault is valid when its value can be a measurement of its metric, and a sentinel when it says "no value".
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import DataFrame

from millstream.pipeline.declaration import Declaration
from millstream.pipeline.job.reasons import Limits, Reason, Verdict
from millstream.pipeline.moments import MINUTE_US, micros
from millstream.pipeline.stores.local_frames import constant

_TIME = "date_format(time, \"yyyy-MM-dd'T'HH:mm:ssXXX\")"


class Fault(NamedTuple):
    """A condition of SQL, and what it says about a record; the message is SQL too."""

    condition: str
    reason: Reason
    field: str
    message: str


def judged(rows: DataFrame, limits: Limits, now: datetime) -> DataFrame:
    """Rows of `typed_fields` or `text_fields`, with a `verdict`, the `minute` of valid and the `fault` of bad ones."""
    # The source could not say more of what does not fit than that; its text will.
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
    shown = f"concat({_quoted(fields['time'] + ' ')}, {_TIME}, "
    yield Fault(
        f"unix_micros(time) < {micros(earliest)}", Reason.TIMESTAMP_OUT_OF_RANGE, fields["time"],
        f"{shown}' is before {earliest:%Y-%m-%dT%H:%M:%SZ}')",
    )  # fmt: skip
    # A record without a time of its own in the log, or with an absurd one, is held against the clock.
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
    """What each metric may be, as a map."""
    entries = (
        f"{_quoted(name)}, struct({float(metric.minimum)!r}D AS minimum, {float(metric.maximum)!r}D AS maximum)"
        for name, metric in declared.metrics.items()
    )
    return f"map({', '.join(entries)})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
