"""How the job is doing, in a file that the query API and the page show: `<data>/status.json`.

It is replaced as a whole after each batch and at least every few seconds, and never read back.
"""

import threading
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from millstream.pipeline.files import write_whole
from millstream.pipeline.history import History
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.moments import rfc3339

_RATE_OVER_S = 10.0
_REASON_PREFIX = "reason:"
COUNTS = ("valid", "bad", "sentinel", "late", "rejected", "lost")


class State(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Status:
    """Safe to use from several threads."""

    def __init__(self, path: Path, ledger: Ledger, about: Mapping[str, str]) -> None:
        self._path = path
        self._ledger = ledger
        self._about = dict(about)
        self._lock = threading.Lock()
        self._state = State.STARTING
        self._started_at = datetime.now(UTC)
        self._progress: Mapping[str, Any] = {}
        self._lag: Mapping[tuple[str, int], int] = {}
        self._under_way_rows = 0
        self._handled: deque[tuple[datetime, int]] = deque([(self._started_at, _handled(ledger.totals))])
        self._last_error: dict[str, str] | None = None
        self._last_rollup_at: datetime | None = None
        self._history = History(path.with_name("history.jsonl"), self._started_at, _handled(ledger.totals))

    def become(self, state: State) -> None:
        with self._lock:
            self._state = state
        self.write()

    def note_error(self, message: str) -> None:
        with self._lock:
            self._last_error = {"message": message, "at": rfc3339(datetime.now(UTC))}
        self.write()

    def note_progress(self, progress: Mapping[str, Any]) -> None:
        """Spark's report of the last micro-batch."""
        with self._lock:
            self._progress = progress

    def note_lag(
        self, by_partition: Mapping[tuple[str, int], int] | None, under_way_rows: int | None
    ) -> None:
        """What the log holds behind the last batch that was done, where that is known, and the size of the next one if
        it was begun."""
        with self._lock:
            self._lag = self._lag if by_partition is None else by_partition
            self._under_way_rows = under_way_rows or 0

    def note_rollup(self) -> None:
        with self._lock:
            self._last_rollup_at = datetime.now(UTC)

    def write(self) -> None:
        document, handled = self.document(), _handled(self._ledger.totals)
        with self._lock:
            self._history.note(datetime.now(UTC), handled, document["lag"])
            write_whole(self._path, orjson.dumps(document, option=orjson.OPT_INDENT_2), durable=False)

    def document(self) -> dict[str, Any]:
        totals = self._ledger.totals
        marks = self._ledger.dirty()
        with self._lock:
            now = datetime.now(UTC)
            duration = self._progress.get("durationMs") or {}
            return {
                **self._about,
                "state": str(self._state),
                "running": self._state is not State.STOPPED,
                "started_at": rfc3339(self._started_at),
                "updated_at": rfc3339(now),
                "batch_id": self._ledger.batch_id,
                "batch_rows": self._ledger.batch_rows,
                "under_way_rows": self._under_way_rows,
                "batch_ms": int(duration.get("triggerExecution", 0)),
                "rows_per_second": self._rate(now, _handled(totals)),
                "lag": sum(self._lag.values()),
                "lag_by_partition": {f"{topic}-{number}": behind for (topic, number), behind in self._lag.items()},
                "watermark": _shown(self._ledger.watermark),
                "newest_point": _shown(self._ledger.newest),
                "counts": {name: totals.get(name, 0) for name in COUNTS},
                "bad_by_reason": {
                    name.removeprefix(_REASON_PREFIX): count
                    for name, count in sorted(totals.items())
                    if name.startswith(_REASON_PREFIX)
                },
                "dirty_minutes": len(marks.minutes),
                "dirty_hours": len(marks.hours),
                "last_rollup_at": _shown(self._last_rollup_at),
                "last_error": self._last_error,
            }  # fmt: skip

    def _rate(self, now: datetime, handled: int) -> float:
        """Over the last seconds, or since the batch before the last where batches take longer."""
        if handled != self._handled[-1][1]:
            self._handled.append((now, handled))
        while len(self._handled) > 2 and (now - self._handled[1][0]).total_seconds() > _RATE_OVER_S:
            self._handled.popleft()
        since, before = self._handled[0]
        return round((handled - before) / max((now - since).total_seconds(), 1.0), 1)


def _handled(totals: Mapping[str, int]) -> int:
    return sum(totals.get(name, 0) for name in ("valid", "bad", "sentinel"))


def _shown(time: datetime | None) -> str | None:
    return None if time is None else rfc3339(time)
