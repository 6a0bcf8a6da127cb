"""Shows a telemetry stream: one live line on a terminal, elsewhere a plain line now and then."""

import time
from typing import TYPE_CHECKING

from millstream.cli import output
from millstream.cli.progress import LiveView

if TYPE_CHECKING:
    from rich.text import Text

    from millstream.pipeline.streamer import Progress

_PLAIN_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.1
_RATE_OVER_S = 3.0
_SILENT_AFTER_S = 1.0
_BEHIND_FROM_S = 1.0


class TelemetryView(LiveView):
    """Shows progress and notes on standard error; the result belongs to standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._shown_at = time.monotonic()
        self._rate = _Rate()

    def progress(self, progress: "Progress") -> None:
        now = time.monotonic()
        if now - self._shown_at < (_REDRAW_EVERY_S if self._live else _PLAIN_EVERY_S):
            return
        self._shown_at = now
        rate = self._rate.after(now, progress.acknowledged)
        if self._live is not None:
            self._live.update(_line(progress, rate), refresh=True)
        else:
            output.note(describe(progress, rate))

    def note(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            output.note(text)


class _Rate:
    """Points a second, over the last moments."""

    def __init__(self) -> None:
        self._seen = [(time.monotonic(), 0)]

    def after(self, now: float, count: int) -> float:
        self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[1][0] > _RATE_OVER_S:
            del self._seen[0]
        then, before = self._seen[0]
        return (count - before) / max(now - then, 1e-3)


def describe(progress: "Progress", rate: float) -> str:
    """`12,000 points acknowledged, 1,000/s, 32 GPUs, at 2026-03-01T12:00:00Z`, and any problems."""
    from millstream.pipeline.record import format_time

    parts = [f"{progress.acknowledged:,} points acknowledged", f"{rate:,.0f}/s", f"{progress.gpus:,} GPUs"]
    if progress.time_ms:
        parts.append(f"at {format_time(progress.time_ms // 1000 * 1000)}")
    if progress.behind_s >= _BEHIND_FROM_S:
        parts.append(f"{progress.behind_s:.0f} s behind")
    if progress.silent_s >= _SILENT_AFTER_S:
        parts.append(
            f"{progress.unanswered:,} waiting for an acknowledgement since {progress.silent_s:.0f} s"
        )
    return ", ".join(parts)


def _line(progress: "Progress", rate: float) -> "Text":
    from rich.text import Text

    is_silent = progress.silent_s >= _SILENT_AFTER_S
    mark = ("◌ ", "yellow") if is_silent else ("● ", "green")
    return Text.assemble(mark, describe(progress, rate))
