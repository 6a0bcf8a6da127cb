"""Progress bars and live views on standard error, shown only to a person at a terminal."""

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress, TaskID


class ByteBar:
    """Shows the bytes done, their total, speed and time left; a context manager.

    with ByteBar("copying") as bar:
        bar.expect(1 << 30)
        bar.advance(4096)
    """

    def __init__(self, action: str) -> None:
        self._action = action
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.progress import TransferSpeedColumn as Speed

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                Speed(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._progress.add_task(self._action, total=None)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def expect(self, total_bytes: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=total_bytes)

    def advance(self, size_bytes: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, size_bytes)


class LiveView:
    """`_live` draws within the `with` block; it is None without a terminal."""

    def __init__(self, *, refresh_per_second: float | None = None) -> None:
        """Without a rate, the caller decides when to draw."""
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._refresh_per_second = refresh_per_second
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._is_live:
            from rich.console import Console
            from rich.live import Live

            rate = self._refresh_per_second
            self._live = Live(
                console=Console(stderr=True),
                auto_refresh=rate is not None,
                refresh_per_second=rate or 4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
