"""What the log says of connections that this node ends: a client that comes back all day does not fill the disk."""

import asyncio
import re
from typing import Any

from millstream.observability.logs import get_logger

log = get_logger("millstream.broker")

_MOST_LINES = 100
_WINDOW_SECONDS = 60.0
_NUMBER = re.compile(r"\d+")


class EndedConnections:
    """A line for each, up to a hundred a minute for one client's address and reason; the rest is counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._counts: dict[tuple[str, str, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, peer: str, reason: str) -> None:
        self._tell(log.warning, "connection closed", peer, reason)

    def ended(self, peer: str, reason: str) -> None:
        """As `refused`, where nothing was wrong with what came."""
        self._tell(log.info, "connection closed", peer, reason)

    def rejected(self, peer: str, reason: str) -> None:
        self._tell(log.warning, "connection rejected", peer, reason)

    def _tell(self, write: Any, event: str, peer: str, reason: str) -> None:
        host = peer.rpartition(":")[0]
        # Sizes and counts differ each time.
        key = event, host, _NUMBER.sub("N", reason)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= _MOST_LINES:
            write(event, peer=peer, reason=reason)
        if self._timer is None:
            self._timer = self._loop.call_later(_WINDOW_SECONDS, self.sum_up)

    def sum_up(self) -> None:
        """Tell what was only counted, and begin again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counts, self._counts = self._counts, {}
        for (event, host, reason), count in counts.items():
            if count > _MOST_LINES:
                log.warning(f"{event}, many times", host=host, reason=reason, more=count - _MOST_LINES)
