"""What a node says while it waits for others, in plain words."""

from collections.abc import Callable, Iterable

from millstream.cluster.raft.membership import ReplicaKey


def away_of(members: Iterable[ReplicaKey], me: ReplicaKey, is_reached: Callable[[ReplicaKey], bool]) -> str:
    """Which members of the quorum do not answer, and what to do."""
    away = sorted(each.node_id for each in members if each != me and not is_reached(each))
    if not away:
        return "the nodes are connected and agree on who leads"
    return f"of the cluster's nodes these do not answer: {', '.join(map(str, away))}; start them"
