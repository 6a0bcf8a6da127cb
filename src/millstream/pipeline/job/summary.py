"""What a micro-batch held: counts, and the minutes that its points fall into."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.job.reasons import Verdict
from millstream.pipeline.moments import MINUTE_US, minute_of, moment
from millstream.pipeline.stores.constants import constant

_SIFTED = (Verdict.VALID, Verdict.SENTINEL, Verdict.ODD)


@dataclass(frozen=True, slots=True)
class Summary:
    verdicts: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    """Valid points of minutes that were over, by the watermark, before the batch came."""
    minutes: frozenset[int] = frozenset()
    """Minutes since the epoch."""
    newest: datetime | None = None

    def count(self, verdict: Verdict) -> int:
        return self.verdicts.get(str(verdict), 0)

    def plus(self, other: "Summary") -> "Summary":
        times = [newest for newest in (self.newest, other.newest) if newest is not None]
        return Summary(
            verdicts=Counter(self.verdicts) + Counter(other.verdicts),
            reasons=Counter(self.reasons) + Counter(other.reasons),
            late=self.late + other.late,
            minutes=self.minutes | other.minutes,
            newest=max(times, default=None),
        )


def observed(watermark: datetime | None) -> list[Column]:
    """What Spark counts of judged rows while it writes them (`DataFrame.observe`)."""
    time_us, verdict = f.unix_micros("time"), f.col("verdict")
    minute = f.floor(time_us / f.lit(MINUTE_US))
    # No number that changes from batch to batch may stand in the query: Spark would compile it again each time.
    over = constant(-(1 << 62) if watermark is None else minute_of(watermark), verdict)
    counts = [f.count_if(verdict == str(each)).alias(str(each)) for each in _SIFTED]
    return [
        *counts,
        f.count_if(minute < over).alias("late"),
        f.collect_set(minute).alias("minutes"),
        f.max(time_us).alias("newest_us"),
    ]


def summary_of(metrics: Mapping[str, Any]) -> Summary:
    """From the metrics that `observed` names; those of an odd record are not known yet."""
    newest_us = metrics["newest_us"]
    kept = (each for each in _SIFTED if each is not Verdict.ODD)
    return Summary(
        verdicts={str(each): metrics[str(each)] for each in kept},
        late=metrics["late"],
        minutes=frozenset(metrics["minutes"]),
        newest=None if newest_us is None else moment(newest_us),
    )


def summarise(rows: DataFrame, watermark: datetime | None) -> Summary:
    """Of examined rows."""
    time_us = f.unix_micros("time")
    minute = f.floor(time_us / f.lit(MINUTE_US)).alias("minute")
    found = (
        rows.groupBy("verdict", "reason", minute)
        .agg(f.count(f.lit(1)).alias("rows"), f.max(time_us).alias("newest_us"))
        .collect()
    )
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    rows_by_minute: Counter[int] = Counter()
    for group in found:
        verdicts[group.verdict] += group.rows
        if group.reason is not None:
            reasons[group.reason] += group.rows
        if group.minute is not None:
            rows_by_minute[group.minute] += group.rows
    newest_us = max((group.newest_us for group in found if group.newest_us is not None), default=None)
    over = -(1 << 62) if watermark is None else minute_of(watermark)
    return Summary(
        verdicts=verdicts,
        reasons=reasons,
        late=sum(count for minute, count in rows_by_minute.items() if minute < over),
        minutes=frozenset(rows_by_minute),
        newest=None if newest_us is None else moment(newest_us),
    )
