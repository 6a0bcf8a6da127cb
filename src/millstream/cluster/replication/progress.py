"""How far one follower is, as its leader sees it."""

import msgspec

UNKNOWN = -1


class FollowerProgress(msgspec.Struct):
    """Times are seconds of any clock that does not jump."""

    end_offset: int = UNKNOWN
    """What the follower has, on disk where the topic is durable: the offset of its last fetch."""
    log_start_offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    caught_up_at: float = float("-inf")
    """The last moment at which it had everything that the leader had."""
    _fetched_at: float = float("-inf")
    _leader_end_at_fetch: int = UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now: float) -> None:
        """Caught up now, or, when it has what there was at its previous fetch, as of then."""
        if offset >= leader_end_offset:
            self.caught_up_at = max(self.caught_up_at, now)
        elif self._leader_end_at_fetch != UNKNOWN and offset >= self._leader_end_at_fetch:
            self.caught_up_at = max(self.caught_up_at, self._fetched_at)
        self.end_offset = offset
        self._fetched_at = now
        self._leader_end_at_fetch = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now: float, max_lag_seconds: float) -> bool:
        return self.end_offset >= leader_end_offset or now - self.caught_up_at <= max_lag_seconds
