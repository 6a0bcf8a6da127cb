"""How long each broker has been silent, as the controller hears it. Only the controller keeps this, in memory."""

from collections.abc import Iterable


class BrokerSessions:
    """Times are seconds of any clock that does not jump; the caller says what time it is."""

    __slots__ = ("_checked_at", "_heard_at", "_timeout")

    def __init__(self, timeout_seconds: float, now: float) -> None:
        self._timeout = timeout_seconds
        self._heard_at: dict[int, float] = {}
        self._checked_at = now

    def heard(self, broker_id: int, now: float) -> None:
        self._heard_at[broker_id] = now

    def heard_at(self, broker_id: int) -> float | None:
        return self._heard_at.get(broker_id)

    def expired(self, brokers: Iterable[int], now: float) -> list[int]:
        """Which of `brokers` have been silent for too long; one that was never heard of begins now.

        Call it several times within a timeout: a longer pause is this node's own, in which it heard nobody.
        """
        pause = now - self._checked_at
        self._checked_at = now
        if pause > self._timeout / 2:
            self._heard_at = {broker: at + pause for broker, at in self._heard_at.items()}
        return [broker for broker in brokers if now - self._heard_at.setdefault(broker, now) > self._timeout]
