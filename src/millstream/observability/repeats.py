"""Bounds repeated log lines: a few for a while, or one when a condition begins and one when it ends."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Kind = TypeVar("Kind")

_MOST_KINDS = 1000
_AGAIN_SECONDS = 60.0


class LogThrottle(Generic[Kind]):
    """Whether to write a line now: at most `most` of each kind in so many seconds. The others are counted.

    Beyond `most_kinds` all counts restart, so that memory is bounded.
    """

    def __init__(
        self,
        now: Callable[[], float],
        seconds: float = _AGAIN_SECONDS,
        most: int = 1,
        *,
        most_kinds: int = _MOST_KINDS,
    ) -> None:
        self._now = now
        self._seconds = seconds
        self._most = most
        self._most_kinds = most_kinds
        self._counts: dict[Kind, tuple[float, int]] = {}
        """When the count began, and the count."""

    def is_due(self, kind: Kind) -> bool:
        now = self._now()
        since, count = self._counts.get(kind, (now, 0))
        if now - since >= self._seconds:
            since, count = now, 0
        if count == 0 and len(self._counts) >= self._most_kinds:
            self._counts.clear()
        self._counts[kind] = since, count + 1
        return count < self._most

    def take_left_out(self) -> dict[Kind, int]:
        """How many lines of each kind were left out; all counts restart."""
        counts, self._counts = self._counts, {}
        return {kind: count - self._most for kind, (_, count) in counts.items() if count > self._most}


class _Log(Protocol):
    def error(self, event: str, **fields: object) -> object: ...

    def warning(self, event: str, **fields: object) -> object: ...

    def info(self, event: str, **fields: object) -> object: ...


class Condition:
    """A lasting condition: logged when it begins, once a minute while it lasts, and when it ends."""

    def __init__(
        self, log: _Log, now: Callable[[], float], lasting: str, ended: str, *, is_error: bool = False
    ) -> None:
        self._log_lasting = log.error if is_error else log.warning
        self._log_ended = log.info
        self._now = now
        self._lasting = lasting
        self._ended = ended
        self._since: float | None = None
        self._logged_at = 0.0

    def lasts(self, **fields: object) -> None:
        now = self._now()
        if self._since is None:
            self._since = now
        elif now - self._logged_at < _AGAIN_SECONDS:
            return
        self._logged_at = now
        self._log_lasting(self._lasting, **fields, seconds=round(now - self._since, 1))

    def ended(self) -> None:
        if self._since is not None:
            self._log_ended(self._ended, seconds=round(self._now() - self._since, 1))
            self._since = None
