"""What the log says of heartbeats that are not taken: one line a minute, for they are tried several times a second."""

from collections.abc import Callable

from millstream.observability.logs import get_logger

log = get_logger("millstream.cluster")

_AGAIN_SECONDS = 60.0


class Silence:
    """A time in which the controller takes no heartbeat of this node."""

    __slots__ = ("_now", "_since", "_told_at")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: float | None = None
        self._told_at = 0.0

    def lasts(self, reason: str) -> None:
        now = self._now()
        if self._since is None:
            self._since = now
        elif now - self._told_at < _AGAIN_SECONDS:
            return
        self._told_at = now
        log.warning("no heartbeat", error=reason, seconds=round(now - self._since, 1))

    def ended(self) -> None:
        if self._since is not None:
            log.info("heartbeat again", seconds=round(self._now() - self._since, 1))
            self._since = None
