"""What a micro-batch held, found in one pass over its rows: counts, and the minutes that its points fall into."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.job.moments import MINUTE_US, minute_of, moment
from millstream.pipeline.job.reasons import Verdict


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

    def settled(self, examination: "Summary") -> "Summary":
        """This one with its doubtful rows as the examination found them."""
        plain = {name: count for name, count in self.verdicts.items() if name != str(Verdict.DOUBTFUL)}
        times = [newest for newest in (self.newest, examination.newest) if newest is not None]
        return Summary(
            verdicts=Counter(plain) + Counter(examination.verdicts),
            reasons=examination.reasons,
            late=self.late + examination.late,
            minutes=self.minutes | examination.minutes,
            newest=max(times, default=None),
        )


def summarise(rows: DataFrame, watermark: datetime | None) -> Summary:
    # No value that changes from batch to batch may stand in the query: Spark would compile it anew each time.
    time_us = f.unix_micros("time")
    reason = f.col("reason") if "reason" in rows.columns else f.lit(None).cast("string")
    minute = f.floor(time_us / f.lit(MINUTE_US)).alias("minute")
    found = (
        rows.groupBy("verdict", reason.alias("reason"), minute)
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
