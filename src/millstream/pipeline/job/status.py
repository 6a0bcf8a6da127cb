"""The job's state and progress, in a file that the query API and the page show (`<data>/status.json`).

The file is replaced as a whole after each batch and at least every few seconds, and the job never reads it back. Spark
reports lag only after a micro-batch, so lag is computed from Spark's log of offsets and from the cluster.
"""

import json
import threading
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from millstream.client.errors import ClientError
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.requests import EARLIEST, LATEST
from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.files import write_whole
from millstream.pipeline.history import History
from millstream.pipeline.job.judge import Verdict
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.moments import rfc3339
from millstream.spark.offsets import Offsets, find_partitions, from_json
from millstream.spark.options import Topics, read_options

_RATE_OVER_S = 10.0
_REASON_PREFIX = "reason:"
COUNTS = ("valid", "bad", "sentinel", "late", "rejected", "lost")


class State(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    STOPPING = "stopping"
    STOPPED = "stopped"


class LogPosition:
    """The job's position in the log at any moment. Thread-safe."""

    def __init__(self, settings: PipelineSettings, checkpoint: Path) -> None:
        options = {
            "kafka.bootstrap.servers": settings.bootstrap,
            "subscribe": settings.topic,
            "kafka.default.api.timeout.ms": "2000",
        }
        self._cluster = Cluster(read_options(options, streaming=True).cluster)
        self._subscription = Topics((settings.topic,))
        self._lock = threading.Lock()
        self._offsets = checkpoint / "offsets"

    def end_of(self, batch_id: int) -> Offsets | None:
        """The end offsets of a batch; None if it was not planned, or Spark has deleted its entry."""
        try:
            lines = (self._offsets / str(batch_id)).read_text().splitlines()
            return from_json(json.loads(lines[-1]))
        except (OSError, ValueError, IndexError):
            return None

    def lag(self, done: int) -> Mapping[tuple[str, int], int] | None:
        """Records in the log after the last finished batch; None if the cluster does not answer."""
        read = self.end_of(done) or {}
        latest = self._ask(LATEST)
        if latest is None:
            return None
        if not read and done < 0:
            read = self._ask(EARLIEST) or {}
        return {place: max(0, end - read.get(place, 0)) for place, end in latest.items()}

    def size_of(self, batch_id: int) -> int | None:
        """The number of offsets in a batch."""
        start, end = self.end_of(batch_id - 1), self.end_of(batch_id)
        if start is None or end is None:
            return None
        return sum(max(0, offset - start.get(place, 0)) for place, offset in end.items())

    def lost_before(self, batch_id: int) -> int:
        """The number of offsets in a planned batch that the topic no longer holds."""
        start, end = self.end_of(batch_id - 1), self.end_of(batch_id)
        earliest = self._ask(EARLIEST) if start is not None and end is not None else None
        if start is None or end is None or earliest is None:
            return 0
        return sum(
            max(0, min(earliest[place], end[place]) - offset)
            for place, offset in start.items()
            if place in earliest and place in end
        )

    def goes_back(self, batch_id: int) -> bool:
        """Whether a planned batch goes back to the beginning of a recreated topic."""
        start, end = self.end_of(batch_id - 1) or {}, self.end_of(batch_id) or {}
        return any(offset < start.get(place, 0) for place, offset in end.items())

    def topic_id(self) -> str | None:
        """The id of the topic that has this name now; None if the cluster does not answer."""
        with self._lock:
            try:
                ids = find_partitions(self._cluster, self._subscription).topic_ids
            except (OSError, ClientError):
                return None
        return next((each.hex() for each in ids.values()), None)

    def close(self) -> None:
        with self._lock:
            self._cluster.close()

    def _ask(self, which: int) -> Offsets | None:
        with self._lock:
            try:
                places = find_partitions(self._cluster, self._subscription).partitions
                return self._cluster.offsets(dict.fromkeys(sorted(places), which))
            except (OSError, ClientError):
                return None


class Status:
    """Thread-safe."""

    def __init__(self, path: Path, ledger: Ledger, position: LogPosition, about: Mapping[str, str]) -> None:
        self._path = path
        self._ledger = ledger
        self._position = position
        self._run_facts = dict(about)
        self._lock = threading.Lock()
        self._state = State.STARTING
        self._started_at = datetime.now(UTC)
        self._batch_ms = 0
        self._lag: Mapping[tuple[str, int], int] = {}
        self._under_way_rows = 0
        handled = _handled(ledger.totals)
        self._handled: deque[tuple[datetime, int]] = deque([(self._started_at, handled)])
        self._last_error: dict[str, str] | None = None
        self._last_rollup_at: datetime | None = None
        self._history = History(path.with_name("history.jsonl"), self._started_at, handled)

    def become(self, state: State) -> None:
        self._state = state
        self._write()

    def note_error(self, message: str) -> None:
        self._last_error = {"message": message, "at": rfc3339(datetime.now(UTC))}
        self._write()

    def note_batch(self, took_ms: int) -> None:
        self._batch_ms = took_ms

    def note_rollup(self) -> None:
        self._last_rollup_at = datetime.now(UTC)

    def look(self) -> None:
        """Update the lag behind the log, if the cluster answers, and the size of the next batch, if it has begun."""
        done = self._ledger.batch_id
        self._lag = self._position.lag(done) or self._lag
        self._under_way_rows = self._position.size_of(done + 1) or 0
        self._write()

    def _write(self) -> None:
        document, handled = self.document(), _handled(self._ledger.totals)
        with self._lock:
            self._history.note(datetime.now(UTC), handled, document["lag"])
            write_whole(self._path, orjson.dumps(document, option=orjson.OPT_INDENT_2), durable=False)

    def document(self) -> dict[str, Any]:
        totals, ledger, now = self._ledger.totals, self._ledger, datetime.now(UTC)
        return {
            **self._run_facts,
            "state": str(self._state),
            "running": self._state is not State.STOPPED,
            "started_at": rfc3339(self._started_at),
            "updated_at": rfc3339(now),
            "batch_id": ledger.batch_id,
            "batch_rows": ledger.batch_rows,
            "under_way_rows": self._under_way_rows,
            "batch_ms": self._batch_ms,
            "rows_per_second": self._rate(now, _handled(totals)),
            "lag": sum(self._lag.values()),
            "lag_by_partition": {
                f"{topic}-{number}": behind for (topic, number), behind in self._lag.items()
            },
            "watermark": _shown(ledger.watermark),
            "newest_point": _shown(ledger.newest),
            "counts": {name: totals.get(name, 0) for name in COUNTS},
            "bad_by_reason": {
                name.removeprefix(_REASON_PREFIX): count
                for name, count in sorted(totals.items())
                if name.startswith(_REASON_PREFIX)
            },
            "dirty_minutes": len(ledger.dirty_minutes()),
            "dirty_hours": len(ledger.dirty_hours()),
            "last_rollup_at": _shown(self._last_rollup_at),
            "last_error": self._last_error,
        }

    def _rate(self, now: datetime, handled: int) -> float:
        """Rows a second over the last seconds, or since the last batch but one if batches take longer."""
        with self._lock:
            if handled != self._handled[-1][1]:
                self._handled.append((now, handled))
            while len(self._handled) > 2 and (now - self._handled[1][0]).total_seconds() > _RATE_OVER_S:
                self._handled.popleft()
            since, before = self._handled[0]
        return round((handled - before) / max((now - since).total_seconds(), 1.0), 1)


def _handled(totals: Mapping[str, int]) -> int:
    return sum(totals.get(name, 0) for name in Verdict)


def _shown(time: datetime | None) -> str | None:
    return None if time is None else rfc3339(time)
