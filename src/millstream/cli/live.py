"""A place on standard error that is drawn again and again, where that is a terminal."""

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.live import Live


class LiveView:
    """Between `with` and its end `_live` draws; it is None where nobody looks."""

    def __init__(self, *, refresh_per_second: float | None = None) -> None:
        """Without a rate the view itself says when to draw."""
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
