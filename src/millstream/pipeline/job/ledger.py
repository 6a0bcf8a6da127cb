"""What the job must not forget between two micro-batches, in one small file beside the checkpoint.

    minutes, hours    windows whose rollups are older than their points, with the batch that touched them last
    health_hours      hours whose health is older than their rollups
    newest            the time of the newest point ever seen: the watermark is this less the allowed delay
    totals            counts of valid, bad, sentinel, late and lost records, and of reasons
    sequence          the number of the last re-computation

It is written before Spark commits the batch. So a crash loses no mark: the batch is either in the ledger, or Spark
replays it. Totals count a replayed batch once.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from millstream.pipeline.files import write_whole
from millstream.pipeline.job.summary import Summary
from millstream.pipeline.moments import MINUTES_PER_HOUR, micros, moment


@dataclass(frozen=True, slots=True)
class Marks:
    """Windows to compute, each with the batch that marked it: a mark made later stays when these are cleared."""

    minutes: Mapping[int, int]
    hours: Mapping[int, int]


class Ledger:
    """Safe to use from the thread of the micro-batches and that of the re-computations."""

    def __init__(self, path: Path, watermark_delay: timedelta) -> None:
        self._path = path
        self._delay = watermark_delay
        self._lock = threading.Lock()
        self._minutes: dict[int, int] = {}
        self._hours: dict[int, int] = {}
        self._health_hours: set[int] = set()
        self._newest: datetime | None = None
        self._batch_id = -1
        self._totals: Counter[str] = Counter()
        self._totals_before: Counter[str] = Counter()
        self._sequence = 0
        self._marks_made = 0
        if path.exists():
            self._restore(orjson.loads(path.read_bytes()))

    @property
    def directory(self) -> Path:
        return self._path.parent

    @property
    def batch_id(self) -> int:
        return self._batch_id

    @property
    def batch_rows(self) -> int:
        """Records of the last batch."""
        with self._lock:
            names = ("valid", "bad", "sentinel")
            return sum(self._totals[name] - self._totals_before[name] for name in names)

    @property
    def newest(self) -> datetime | None:
        return self._newest

    @property
    def watermark(self) -> datetime | None:
        return None if self._newest is None else self._newest - self._delay

    @property
    def totals(self) -> dict[str, int]:
        with self._lock:
            return dict(self._totals)

    def record(self, batch_id: int, summary: Summary, *, rejected: int = 0, lost: int = 0) -> None:
        """Note a batch whose points are in the store, and how many records the topic had lost before it."""
        with self._lock:
            if batch_id != self._batch_id:
                self._totals_before = self._totals
                self._batch_id = batch_id
            counts = Counter({"late": summary.late, "rejected": rejected, "lost": lost})
            counts.update(summary.verdicts)
            counts.update({f"reason:{reason}": count for reason, count in summary.reasons.items()})
            self._totals = self._totals_before + counts
            self._mark(summary.minutes)
            if summary.newest is not None and (self._newest is None or summary.newest > self._newest):
                self._newest = summary.newest
            self._write()

    def mark(self, minutes: Iterable[int]) -> None:
        """Have these minutes, and their hours, computed again."""
        with self._lock:
            self._mark(minutes)
            self._write()

    def observe(self, newest: datetime) -> None:
        """Move the watermark to what a backfill has read."""
        with self._lock:
            if self._newest is None or newest > self._newest:
                self._newest = newest
                self._write()

    def dirty(self) -> Marks:
        with self._lock:
            return Marks(dict(self._minutes), dict(self._hours))

    def dirty_health(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._health_hours)

    def next_version(self, at_least: int) -> int:
        """A number for a write of rollups or events, above all that this job and its store have used."""
        with self._lock:
            self._sequence = max(self._sequence + 1, at_least)
            return self._sequence

    def clear(self, done: Marks) -> None:
        """These windows are in the store; those that were marked again meanwhile stay marked."""
        with self._lock:
            self._health_hours |= {minute // MINUTES_PER_HOUR for minute in done.minutes}
            for pending, cleared in ((self._minutes, done.minutes), (self._hours, done.hours)):
                for window, mark in cleared.items():
                    if pending.get(window) == mark:
                        del pending[window]
            self._write()

    def clear_health(self, hours: Iterable[int]) -> None:
        """Only the thread that computes health adds and clears these, so none is lost in between."""
        with self._lock:
            self._health_hours -= set(hours)
            self._write()

    def _mark(self, minutes: Iterable[int]) -> None:
        self._marks_made += 1
        for minute in minutes:
            self._minutes[minute] = self._marks_made
            self._hours[minute // MINUTES_PER_HOUR] = self._marks_made

    def _write(self) -> None:
        document = {
            "batch_id": self._batch_id,
            "newest_us": None if self._newest is None else micros(self._newest),
            "minutes": sorted(self._minutes),
            "hours": sorted(self._hours),
            "health_hours": sorted(self._health_hours),
            "totals": self._totals,
            "totals_before": self._totals_before,
            "sequence": self._sequence,
        }
        write_whole(self._path, orjson.dumps(document))

    def _restore(self, document: dict[str, Any]) -> None:
        self._batch_id = document["batch_id"]
        newest_us = document["newest_us"]
        self._newest = None if newest_us is None else moment(newest_us)
        self._minutes = dict.fromkeys(document["minutes"], 0)
        self._hours = dict.fromkeys(document["hours"], 0)
        self._health_hours = set(document["health_hours"])
        self._totals = Counter(document["totals"])
        self._totals_before = Counter(document["totals_before"])
        self._sequence = document["sequence"]
