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

from millstream.pipeline.job.files import write_whole
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.job.moments import rfc3339
from millstream.spark.progress import lag_of

_RATE_OVER_S = 10.0
_REASON_PREFIX = "reason:"


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
        self._batches: deque[tuple[datetime, int]] = deque()
        self._last_error: dict[str, str] | None = None
        self._last_rollup_at: datetime | None = None

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
            if progress.get("batchId") != self._progress.get("batchId"):
                self._batches.append((datetime.now(UTC), int(progress.get("numInputRows", 0))))
            self._progress = progress

    def note_rollup(self) -> None:
        with self._lock:
            self._last_rollup_at = datetime.now(UTC)

    def write(self) -> None:
        document = self.document()
        with self._lock:
            write_whole(self._path, orjson.dumps(document, option=orjson.OPT_INDENT_2), durable=False)

    def document(self) -> dict[str, Any]:
        totals = self._ledger.totals
        marks = self._ledger.dirty()
        with self._lock:
            now = datetime.now(UTC)
            lag = lag_of(self._progress).by_partition if self._progress.get("sources") else {}
            duration = self._progress.get("durationMs") or {}
            return {
                **self._about,
                "state": str(self._state),
                "running": self._state is not State.STOPPED,
                "started_at": rfc3339(self._started_at),
                "updated_at": rfc3339(now),
                "batch_id": self._ledger.batch_id,
                "batch_rows": int(self._progress.get("numInputRows", 0)),
                "batch_ms": int(duration.get("triggerExecution", 0)),
                "rows_per_second": self._rate(now),
                "lag": sum(lag.values()),
                "lag_by_partition": {f"{topic}-{partition}": behind for (topic, partition), behind in lag.items()},
                "watermark": _shown(self._ledger.watermark),
                "newest_point": _shown(self._ledger.newest),
                "counts": {name: totals.get(name, 0) for name in ("valid", "bad", "sentinel", "late", "rejected")},
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

    def _rate(self, now: datetime) -> float:
        while self._batches and (now - self._batches[0][0]).total_seconds() > _RATE_OVER_S:
            self._batches.popleft()
        since = min(_RATE_OVER_S, max((now - self._started_at).total_seconds(), 1.0))
        return round(sum(rows for _, rows in self._batches) / since, 1)


def _shown(time: datetime | None) -> str | None:
    return None if time is None else rfc3339(time)
