"""The job's status files for the query API: `<data>/status.json`, and a history with one line of JSON a minute in
`<data>/history.jsonl`. A line that a crash cut off is skipped.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from millstream.pipeline.files import write_whole
from millstream.pipeline.moments import minute_of, minute_start, rfc3339

KEPT = timedelta(days=7)
_MOST_LINES = 2 * (KEPT // timedelta(minutes=1))
_ALIVE_FOR = timedelta(seconds=30)


def read_status(path: Path | None) -> dict[str, Any]:
    """The status with `running`, which is false if the job never ran or the file cannot be read."""
    try:
        content = orjson.loads(path.read_bytes()) if path is not None else {}
        updated_at = datetime.fromisoformat(str(content["updated_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return {"running": False}
    if updated_at.tzinfo is None:
        updated_at = updated_at.replace(tzinfo=UTC)
    stopped = content.get("running") is False
    return {**content, "running": not stopped and datetime.now(UTC) - updated_at < _ALIVE_FOR}


class History:
    def __init__(self, path: Path, now: datetime, handled: int) -> None:
        self._path = path
        self._since, self._handled = now, handled
        self._keep([row for row in read_rows(path) if row["time"] >= rfc3339(now - KEPT)])

    def note(self, now: datetime, handled: int, lag: int) -> None:
        """Write a line once a minute is over. `handled` are the job's rows so far, `lag` the records it is behind."""
        if minute_of(now) == minute_of(self._since):
            return
        rate = round((handled - self._handled) / (now - self._since).total_seconds(), 1)
        row = {"time": rfc3339(minute_start(minute_of(self._since))), "rows_per_second": rate, "lag": lag}
        self._since, self._handled = now, handled
        if self._lines >= _MOST_LINES:
            self._keep(read_rows(self._path)[-_MOST_LINES // 2 :])
        with self._path.open("ab") as file:
            file.write(_line(row))
        self._lines += 1

    def _keep(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._lines = len(rows)
        write_whole(self._path, b"".join(map(_line, rows)), durable=False)


def history_between(path: Path | None, start: datetime | None, end: datetime | None) -> list[dict[str, Any]]:
    """The minutes that begin within [start, end]; empty if no job has written any."""
    first, last = (
        rfc3339(start or datetime.min.replace(tzinfo=UTC)),
        rfc3339(end or datetime.max.replace(tzinfo=UTC)),
    )
    return [row for row in (read_rows(path) if path is not None else []) if first <= row["time"] <= last]


def read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    return [row for line in lines if (row := _row(line)) is not None]


def _line(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row) + b"\n"


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = orjson.loads(line)
    except ValueError:
        return None
    known = isinstance(row, dict) and isinstance(row.get("time"), str)
    return row if known and {"rows_per_second", "lag"} <= row.keys() else None
