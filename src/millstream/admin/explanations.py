"""Explains why a partition has no leader or a node is kept out, and what to do."""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from millstream.client.wire.cluster import Cluster
from millstream.protocol.log_faults import Faults

_PAGE = 2000


class Leaderless(msgspec.Struct, frozen=True):
    """None of `compared` surely has all records: these replicas stopped uncleanly, or are the partition's last.

    `fenced` nodes run but count as away, because the controller keeps them out.
    """

    topic: str
    index: int
    replicas: tuple[int, ...]
    away: tuple[int, ...]
    has_all: tuple[int, ...]
    compared: tuple[int, ...]
    fenced: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """In the form that commands take."""
        return f"{self.topic}:{self.index}"

    @property
    def reason(self) -> str:
        if set(self.away) >= set(self.replicas):
            return f"no replica is alive: {_nodes(self.replicas)}"
        if self.has_all:
            return f"waits for {_nodes(self.has_all)}, which {_has(self.has_all)} everything acknowledged"
        waited_for = [each for each in self.compared if each in self.away]
        if waited_for:
            return (
                f"{_nodes(self.compared)} {_is(self.compared)} in doubt after an unclean stop; waits for"
                f" {_nodes(waited_for)}, so that the logs can be compared"
            )
        if self.compared:
            return (
                f"{_nodes(self.compared)} {_is(self.compared)} in doubt after an unclean stop, and"
                f" {_has(self.compared)} not reported yet how far the logs reach"
            )
        return "none of the replicas is known to have everything acknowledged"

    @property
    def advice(self) -> str:
        lost = f"`millstream cluster elect --unclean {self.name}` takes what is left"
        awaited = [each for each in (self.has_all or self.compared or self.replicas) if each in self.away]
        gone = [each for each in awaited if each not in self.fenced]
        if gone:
            removed = " ".join(f"`millstream cluster remove {each} --force`" for each in gone)
            return f"start {_nodes(gone)}; if the disk is lost: {removed}, and what is left leads"
        if awaited:
            return f"{_nodes(awaited)} {_is(awaited)} up, but fenced: follow the advice for fenced nodes"
        if self.compared:
            return f"if it stays so, the log of {_nodes(self.compared)} says which replica cannot be opened; {lost}"
        return lost


def leaderless_of(
    cluster: Cluster, topics: Collection[str], fenced: Collection[int]
) -> tuple[Leaderless, ...]:
    """The partitions of these topics without a leader; `fenced` nodes run but are kept out."""
    return tuple(
        Leaderless(
            topic.name,
            p.partition_index,
            tuple(p.replica_nodes),
            tuple(p.offline_replicas),
            (*p.isr_nodes, *(p.eligible_leader_replicas or ())),
            tuple(p.last_known_elr or ()),
            tuple(fenced),
        )
        for topic in _described(cluster, topics)
        for p in topic.partitions
        if p.leader_id < 0
    )


class FencedNode(msgspec.Struct, frozen=True):
    node_id: int
    is_up: bool
    reason: str
    advice: str


def why_fenced(node_id: int, report: Faults | None) -> FencedNode:
    """Judged by the node's own report; None if it does not answer."""
    if report is None:
        return FencedNode(
            node_id, False, "it does not answer", f"start node {node_id}, or look at its network"
        )
    if report.node is not None:
        return FencedNode(node_id, True, report.node.reason, report.node.advice)
    return FencedNode(
        node_id,
        True,
        "it answers: it is starting, or cut off from the other nodes",
        f"/health and the log of node {node_id} say which; it comes back by itself",
    )


def _described(cluster: Cluster, topics: Collection[str]) -> Iterable[Any]:
    if not topics:
        return
    cursor = None
    while True:
        wanted = [{"name": name} for name in sorted(topics)]
        reply = cluster.call(
            "describe_topic_partitions", topics=wanted, response_partition_limit=_PAGE, cursor=cursor
        )
        yield from reply.topics
        if reply.next_cursor is None:
            return
        cursor = {
            "topic_name": reply.next_cursor.topic_name,
            "partition_index": reply.next_cursor.partition_index,
        }


def _nodes(numbers: Collection[int]) -> str:
    names = ", ".join(map(str, numbers))
    return f"node {names}" if len(numbers) == 1 else f"nodes {names}"


def _has(numbers: Collection[int]) -> str:
    return "has" if len(numbers) == 1 else "have"


def _is(numbers: Collection[int]) -> str:
    return "is" if len(numbers) == 1 else "are"
