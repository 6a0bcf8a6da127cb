"""What a node says while it waits for others: in plain words, once a minute or when it is something else."""

from collections.abc import Callable, Iterable

from millstream.cluster.raft.membership import ReplicaKey
from millstream.observability.logs import get_logger

log = get_logger("millstream.cluster")

_AGAIN_SECONDS = 60.0


class WaitLog:
    __slots__ = ("_now", "_reason", "_told_at")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._reason: str | None = None
        self._told_at = 0.0

    def lasts(self, waiting: str, reason: str) -> None:
        now = self._now()
        if reason == self._reason and now - self._told_at < _AGAIN_SECONDS:
            return
        self._reason, self._told_at = reason, now
        log.info(waiting, reason=reason)


def away_of(members: Iterable[ReplicaKey], me: ReplicaKey, is_reached: Callable[[ReplicaKey], bool]) -> str:
    """Which members of the quorum do not answer, and what to do."""
    away = sorted(each.node_id for each in members if each != me and not is_reached(each))
    if not away:
        return "the nodes are connected and agree on who leads"
    return f"of the cluster's nodes these do not answer: {', '.join(map(str, away))}; start them"
