"""Log lines that would come again and again: one for a while, or one when a condition begins and one when it ends."""

from collections.abc import Callable, Hashable
from typing import Protocol

_MOST_KEYS = 1000
_AGAIN_SECONDS = 60.0


class Repeats:
    """Whether a line is to be written now: each kind once in so many seconds."""

    def __init__(self, now: Callable[[], float], seconds: float = _AGAIN_SECONDS) -> None:
        self._now = now
        self._seconds = seconds
        self._written: dict[Hashable, float] = {}

    def is_due(self, kind: Hashable) -> bool:
        now = self._now()
        if now - self._written.get(kind, -self._seconds) < self._seconds:
            return False
        if len(self._written) >= _MOST_KEYS:
            self._written.clear()
        self._written[kind] = now
        return True


class _Log(Protocol):
    def warning(self, event: str, **fields: object) -> object: ...

    def info(self, event: str, **fields: object) -> object: ...


class Condition:
    """Something that lasts: told when it begins, once a minute while it lasts, and when it ends."""

    def __init__(self, log: _Log, now: Callable[[], float], lasting: str, ended: str) -> None:
        self._log = log
        self._now = now
        self._lasting = lasting
        self._ended = ended
        self._since: float | None = None
        self._told_at = 0.0

    def lasts(self, reason: str) -> None:
        now = self._now()
        if self._since is None:
            self._since = now
        elif now - self._told_at < _AGAIN_SECONDS:
            return
        self._told_at = now
        self._log.warning(self._lasting, error=reason, seconds=round(now - self._since, 1))

    def ended(self) -> None:
        if self._since is not None:
            self._log.info(self._ended, seconds=round(self._now() - self._since, 1))
            self._since = None
