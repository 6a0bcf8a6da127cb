"""Records the job's state between micro-batches in one small file beside the checkpoint.

    minutes, hours    windows whose rollups are older than their points, with the batch that touched them last
    health_hours      hours whose health is older than their rollups
    newest            the time of the newest point ever seen: the watermark is this less the allowed delay
    totals            counts of valid, bad, sentinel, late and lost records, and of reasons
    sequence          the number of the last re-computation
    topic_id          the topic whose offsets are in the checkpoint: a recreated topic has the same name

The file is written before Spark commits the batch. So a crash loses no mark: the batch is either in the ledger, or
Spark replays it. Totals count a replayed batch once.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as f

from millstream.pipeline.files import write_whole
from millstream.pipeline.job.judge import Reason, Verdict
from millstream.pipeline.moments import MINUTES_PER_HOUR, micros, minute_of, moment
from millstream.pipeline.stores.local_frames import constant


@dataclass(frozen=True, slots=True)
class Summary:
    verdicts: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    """Valid points in minutes that were before the watermark when the batch began."""
    minutes: frozenset[int] = frozenset()
    """Minutes since the epoch."""
    newest: datetime | None = None

    def count(self, verdict: Verdict) -> int:
        return self.verdicts.get(str(verdict), 0)

    def examined(self, other: "Summary") -> "Summary":
        """A copy in which the bad records' count is replaced by the result of reading their text."""
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
    """The counts that Spark makes of judged rows while it writes them (`DataFrame.observe`)."""
    over = -(1 << 62) if watermark is None else minute_of(watermark)
    return [
        *(f.expr(f"count_if(verdict = '{each}') AS {each}") for each in Verdict),
        *(f.expr(f"count_if(fault.reason = '{each}') AS {each}") for each in Reason if reasons),
        f.expr(f"count_if(minute < {constant(over, 'verdict')}) AS late"),
        f.expr("collect_set(minute) AS minutes"),
        f.expr("max(unix_micros(IF(minute IS NULL, NULL, time))) AS newest_us"),
    ]


def summary_of(metrics: Mapping[str, Any]) -> Summary:
    """The summary in the metrics that `observed` names."""
    newest_us = metrics["newest_us"]
    return Summary(
        verdicts={str(each): metrics[str(each)] for each in Verdict},
        reasons={str(each): metrics[str(each)] for each in Reason if metrics.get(str(each))},
        late=metrics["late"],
        minutes=frozenset(metrics["minutes"]),
        newest=None if newest_us is None else moment(newest_us),
    )


class _File(msgspec.Struct):
    batch_id: int = -1
    newest_us: int | None = None
    minutes: list[int] = []
    hours: list[int] = []
    health_hours: list[int] = []
    totals: dict[str, int] = {}
    totals_before: dict[str, int] = {}
    sequence: int = 0
    topic_id: str = ""


class Ledger:
    """Safe to use from the threads of the micro-batches and of the re-computations.

    A mark is a window with a number. A window that was marked again meanwhile has another number, so clearing its older
    mark does not remove it.
    """

    def __init__(self, path: Path, watermark_delay: timedelta) -> None:
        self._path = path
        self._delay = watermark_delay
        self._lock = threading.Lock()
        stored = msgspec.json.decode(path.read_bytes(), type=_File) if path.exists() else _File()
        self.batch_id = stored.batch_id
        self.newest = None if stored.newest_us is None else moment(stored.newest_us)
        self._minutes = dict.fromkeys(stored.minutes, 0)
        self._hours = dict.fromkeys(stored.hours, 0)
        self._health_hours = set(stored.health_hours)
        self._totals, self._totals_before = Counter(stored.totals), Counter(stored.totals_before)
        self._sequence = stored.sequence
        self.topic_id = stored.topic_id
        self._marks_made = 0

    @property
    def batch_rows(self) -> int:
        """Records of the last batch."""
        with self._lock:
            return sum(self._totals[each] - self._totals_before[each] for each in Verdict)

    @property
    def watermark(self) -> datetime | None:
        return None if self.newest is None else self.newest - self._delay

    @property
    def totals(self) -> dict[str, int]:
        with self._lock:
            return dict(self._totals)

    def record(self, batch_id: int, summary: Summary, *, rejected: int = 0, lost: int = 0) -> None:
        """Record a batch whose points are in the store; `lost` records were deleted before the job could read them."""
        with self._lock:
            if batch_id != self.batch_id:
                self._totals_before = self._totals
                self.batch_id = batch_id
            counts = Counter({"late": summary.late, "rejected": rejected, "lost": lost})
            counts.update(summary.verdicts)
            counts.update({f"reason:{reason}": count for reason, count in summary.reasons.items()})
            self._totals = self._totals_before + counts
            self._mark(summary.minutes, summary.newest)

    def read_topic(self, topic_id: str, *, anew: bool) -> None:
        """Note the topic whose offsets the checkpoint holds from now on; `anew` restarts the batch ids at 0."""
        with self._lock:
            self.topic_id = topic_id
            if anew:
                self.batch_id = -1
            self._write()

    def mark(self, minutes: Iterable[int], newest: datetime | None = None) -> None:
        """Mark these minutes and their hours to be computed again; `newest` is the newest time of their points."""
        with self._lock:
            self._mark(minutes, newest)

    def dirty_minutes(self) -> dict[int, int]:
        with self._lock:
            return dict(self._minutes)

    def dirty_hours(self) -> dict[int, int]:
        with self._lock:
            return dict(self._hours)

    def dirty_health(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._health_hours)

    def next_version(self, at_least: int) -> int:
        """The version for a write of rollups or events, higher than all earlier ones; `at_least` if that is higher."""
        with self._lock:
            self._sequence = max(self._sequence + 1, at_least)
            return self._sequence

    def clear_minutes(self, done: Mapping[int, int]) -> None:
        """Clear the marks of minutes whose rollups are stored, and mark the health of their hours as outdated."""
        with self._lock:
            self._health_hours |= {minute // MINUTES_PER_HOUR for minute in done}
            self._minutes = dict(self._minutes.items() - done.items())
            self._write()

    def clear_hours(self, done: Mapping[int, int]) -> None:
        with self._lock:
            self._hours = dict(self._hours.items() - done.items())
            self._write()

    def clear_health(self, hours: Iterable[int]) -> None:
        """Clear the marks of these hours. A single thread adds and clears these marks, so none is lost in between."""
        with self._lock:
            self._health_hours -= set(hours)
            self._write()

    def _mark(self, minutes: Iterable[int], newest: datetime | None) -> None:
        self._marks_made += 1
        for minute in minutes:
            self._minutes[minute] = self._marks_made
            self._hours[minute // MINUTES_PER_HOUR] = self._marks_made
        if newest is not None and (self.newest is None or newest > self.newest):
            self.newest = newest
        self._write()

    def _write(self) -> None:
        content = _File(
            self.batch_id, None if self.newest is None else micros(self.newest), sorted(self._minutes),
            sorted(self._hours), sorted(self._health_hours), self._totals, self._totals_before, self._sequence,
            self.topic_id,
        )  # fmt: skip
        write_whole(self._path, msgspec.json.encode(content))
