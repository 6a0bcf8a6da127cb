"""The output of `millstream pipeline` while it works: a few live lines on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from millstream.cli import output
from millstream.cli.progress import LiveView

_LINE_EVERY_S = 30.0


class RunView(LiveView):
    """Shows the state of a run. Notes stay on the screen; the lines below them are redrawn."""

    def __init__(self) -> None:
        super().__init__(refresh_per_second=4)
        self._lock = threading.Lock()
        self._said_at = time.monotonic()

    def note(self, text: str) -> None:
        line = f"{datetime.now(UTC):%H:%M:%S} {text}"
        with self._lock:
            if self._live is not None:
                self._live.console.print(line, markup=False, highlight=False)
            else:
                output.note(line)
                sys.stderr.flush()

    def show(self, status: Mapping[str, Any]) -> None:
        if self._live is not None:
            self._live.update("\n".join(lines_of(status)))
        elif time.monotonic() - self._said_at > _LINE_EVERY_S:
            self._said_at = time.monotonic()
            self.note(", ".join(part.strip() for part in lines_of(status)))


class WorkView:
    """Shows the progress of a backfill."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()

    def update(self, what: str, done: int, total: int) -> None:
        if self._is_live:
            sys.stderr.write(f"\r{what}: {done:,} of {total:,}\x1b[K")
            if done >= total:
                sys.stderr.write("\n")
            sys.stderr.flush()
        elif done >= total:
            output.note(f"{what}: {total:,}")


class StageView:
    """Shows the stage of a report, on a terminal only: it takes seconds."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()

    def say(self, what: str) -> None:
        if self._is_live:
            sys.stderr.write(f"\r\x1b[K{what}")
            sys.stderr.flush()


def lines_of(status: Mapping[str, Any]) -> list[str]:
    counts = status["counts"]
    to_compute = f"{status['dirty_minutes']:,} minutes, {status['dirty_hours']:,} hours"
    lines = [
        (
            f"{status['state']}: batch {status['batch_id']}, {status['rows_per_second']:,.0f} rows/s,"
            f" lag {status['lag']:,}"
        ),
        (
            f"points {counts['valid']:,}, bad {counts['bad']:,}, sentinels {counts['sentinel']:,},"
            f" late {counts['late']:,}, lost {counts['lost']:,}"
        ),
        f"watermark {status['watermark'] or '-'}, to compute: {to_compute}",
    ]
    if status["last_error"] is not None:
        lines.append(f"last error at {status['last_error']['at']}: {status['last_error']['message']}")
    return lines
