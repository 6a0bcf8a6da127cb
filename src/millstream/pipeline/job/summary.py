"""What a micro-batch held, counted by Spark while it writes: verdicts, reasons, and the minutes of its points."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f

from millstream.pipeline.job.reasons import Reason, Verdict
from millstream.pipeline.moments import minute_of, moment
from millstream.pipeline.stores.local_frames import constant


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

    def examined(self, other: "Summary") -> "Summary":
        """With what the text of the bad ones told instead of their number."""
        times = [newest for newest in (self.newest, other.newest) if newest is not None]
        known = {name: count for name, count in self.verdicts.items() if name != Verdict.BAD}
        return Summary(
            verdicts=Counter(known) + Counter(other.verdicts),
            reasons=other.reasons,
            late=self.late + other.late,
            minutes=self.minutes | other.minutes,
            newest=max(times, default=None),
        )


def observed(watermark: datetime | None, *, reasons: bool = False) -> list[Column]:
    """What Spark counts of judged rows while it writes them (`DataFrame.observe`)."""
    over = -(1 << 62) if watermark is None else minute_of(watermark)
    return [
        *(f.expr(f"count_if(verdict = '{each}') AS {each}") for each in Verdict),
        *(f.expr(f"count_if(fault.reason = '{each}') AS {each}") for each in Reason if reasons),
        f.expr(f"count_if(minute < {constant(over, 'verdict')}) AS late"),
        f.expr("collect_set(minute) AS minutes"),
        f.expr("max(unix_micros(IF(minute IS NULL, NULL, time))) AS newest_us"),
    ]


def summary_of(metrics: Mapping[str, Any]) -> Summary:
    """From the metrics that `observed` names."""
    newest_us = metrics["newest_us"]
    return Summary(
        verdicts={str(each): metrics[str(each)] for each in Verdict},
        reasons={str(each): metrics[str(each)] for each in Reason if metrics.get(str(each))},
        late=metrics["late"],
        minutes=frozenset(metrics["minutes"]),
        newest=None if newest_us is None else moment(newest_us),
    )
