"""The present state of a cluster: brokers, votes, and partitions."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any

import msgspec

from millstream.admin.explanations import FencedNode, Leaderless, leaderless_of, why_fenced
from millstream.client.errors import ClientError, from_code
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.connection import Connection
from millstream.protocol.api import LOG_FAULTS
from millstream.protocol.log_faults import Faults, LogFault, NodeFault, decode_log_faults

QUORUM_TOPIC = "__cluster_metadata"
_PROBES_AT_ONCE = 16


class BrokerState(StrEnum):
    LIVE = "live"
    FENCED = "fenced"
    """The controller gets no heartbeats from it, or it has just been registered."""
    NO_ANSWER = "no answer"
    """There is no controller to ask, and the node does not answer either."""


class PartitionView(msgspec.Struct, frozen=True):
    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def name(self) -> str:
        """In the form that commands take."""
        return f"{self.topic}:{self.index}"


class BrokerView(msgspec.Struct, frozen=True):
    broker_id: int
    address: str
    rack: str | None
    state: BrokerState
    quorum: str
    """Its role in the metadata quorum: `leader`, `voter` or `follower`; empty for none."""
    log_end: int | None
    leaders: int
    replicas: int

    @property
    def is_live(self) -> bool:
        return self.state is BrokerState.LIVE


class ClusterView(msgspec.Struct, frozen=True):
    cluster_id: str
    controller: int
    brokers: tuple[BrokerView, ...]
    partitions: tuple[PartitionView, ...]
    reassigning: int
    voters_away: tuple[int, ...] = ()
    unled: tuple[Leaderless, ...] = ()
    """Reasons for which partitions have no leader."""
    fenced: tuple[FencedNode, ...] = ()
    """Reasons for which the controller keeps nodes out."""
    faults: tuple[LogFault, ...] = ()
    """Faults of logs, as their nodes report them."""
    refusing: tuple[NodeFault, ...] = ()
    """Nodes that are let in but refuse writes, because no other node could take over."""

    @property
    def leaderless(self) -> list[PartitionView]:
        return [each for each in self.partitions if each.leader < 0]

    @property
    def under_replicated(self) -> list[PartitionView]:
        return [each for each in self.partitions if len(each.isr) < len(each.replicas)]

    @property
    def catching_up(self) -> dict[int, list[str]]:
        """Nodes that run, with the partitions in which they are not in sync."""
        behind = {
            broker.broker_id: [
                each.name
                for each in self.partitions
                if each.leader >= 0 and broker.broker_id in set(each.replicas) - set(each.isr)
            ]
            for broker in self.live_brokers()
        }
        return {node: names for node, names in behind.items() if names}

    @property
    def faulty(self) -> list[str]:
        return sorted({f"{each.topic}:{each.partition}" for each in self.faults})

    @property
    def not_preferred(self) -> list[PartitionView]:
        return [each for each in self.partitions if 0 <= each.leader != each.replicas[0]]

    @property
    def topics(self) -> int:
        return len({each.topic for each in self.partitions})

    @property
    def is_healthy(self) -> bool:
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """The problems in words; none if every node and every replica is healthy."""
        up = [each.node_id for each in self.fenced if each.is_up]
        away = [each for each in self.brokers if not each.is_live and each.broker_id not in up]
        found = {
            "no controller": self.controller < 0,
            f"{len(away)} of {len(self.brokers)} nodes away": away,
            f"{len(up)} of {len(self.brokers)} nodes up, but fenced": up,
            f"{len(self.refusing)} of {len(self.brokers)} nodes refuse writes": self.refusing,
            f"voters away: {', '.join(map(str, self.voters_away))}": self.voters_away,
            f"{len(self.leaderless)} partitions without a leader": self.leaderless,
            f"{len(self.under_replicated)} partitions with replicas out of sync": self.under_replicated,
            f"{len(self.faulty)} partitions with damaged or missing records": self.faulty,
        }
        return [problem for problem, is_so in found.items() if is_so]

    def live_brokers(self) -> list[BrokerView]:
        return [each for each in self.brokers if each.is_live]

    def broker(self, broker_id: int) -> BrokerView | None:
        return next((each for each in self.brokers if each.broker_id == broker_id), None)


def view_cluster(cluster: Cluster) -> ClusterView:
    described = cluster.call("describe_cluster", include_fenced_brokers=True)
    if described.error_code:
        raise from_code("cannot describe the cluster", described.error_code, described.error_message)
    votes, ends = _quorum(cluster)
    partitions = partitions_of(cluster)
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(broker for each in partitions for broker in each.replicas)
    moving = cluster.call("list_partition_reassignments", topics=None)
    states = _states(cluster, described)
    brokers = tuple(
        BrokerView(
            each.broker_id,
            f"{each.host}:{each.port}",
            each.rack,
            states[each.broker_id],
            votes.get(each.broker_id, ""),
            ends.get(each.broker_id),
            leaders[each.broker_id],
            replicas[each.broker_id],
        )
        for each in described.brokers
    )
    told = _ask_faults(cluster, described, states)
    fenced = tuple(
        why_fenced(node, answer) for node, answer in told.items() if states[node] is BrokerState.FENCED
    )
    answers = {node: answer for node, answer in told.items() if answer is not None}
    up = [each.node_id for each in fenced if each.is_up]
    there = {*up, *(each.broker_id for each in brokers if each.is_live)}
    return ClusterView(
        described.cluster_id,
        described.controller_id,
        brokers,
        tuple(partitions),
        sum(len(topic.partitions) for topic in moving.topics),
        tuple(sorted(node for node, vote in votes.items() if vote != "follower" and node not in there)),
        leaderless_of(cluster, {each.topic for each in partitions if each.leader < 0}, up),
        fenced,
        tuple(fault for answer in answers.values() for fault in answer.logs),
        tuple(
            answer.node
            for node, answer in answers.items()
            if answer.node is not None and states[node] is BrokerState.LIVE
        ),
    )


def _ask_faults(cluster: Cluster, described: Any, states: dict[int, BrokerState]) -> dict[int, Faults | None]:
    """The faults that each node reports; None for a node that does not answer."""

    def ask(broker: Any) -> Faults | None:
        try:
            connection = Connection((broker.host, broker.port), cluster.settings)
            try:
                return decode_log_faults(connection.request(LOG_FAULTS, 0, b""))
            finally:
                connection.close()
        except (OSError, ClientError):
            return None
        except msgspec.MsgspecError:
            # It runs an earlier version.
            return Faults()

    asked = [each for each in described.brokers if states[each.broker_id] is not BrokerState.NO_ANSWER]
    with ThreadPoolExecutor(_PROBES_AT_ONCE) as pool:
        return dict(zip([each.broker_id for each in asked], pool.map(ask, asked), strict=True))


def partitions_of(cluster: Cluster) -> list[PartitionView]:
    """All partitions, including internal topics, by topic and number."""
    found = cluster.patiently("cannot list the topics", lambda: cluster.metadata(None))
    return sorted(
        (
            PartitionView(
                topic.name or "",
                each.partition,
                each.leader,
                tuple(each.replicas),
                tuple(each.in_sync_replicas),
            )
            for topic in found.topics
            for each in topic.partitions
        ),
        key=lambda each: (each.topic, each.index),
    )


def _states(cluster: Cluster, described: Any) -> dict[int, BrokerState]:
    """As the controller sees them. Without a controller the last known state says little, so each broker is asked."""
    if described.controller_id >= 0:
        return {
            each.broker_id: BrokerState.FENCED if each.is_fenced else BrokerState.LIVE
            for each in described.brokers
        }

    def ask(broker: Any) -> BrokerState:
        try:
            Connection((broker.host, broker.port), cluster.settings).close()
        except (OSError, ClientError):
            return BrokerState.NO_ANSWER
        return BrokerState.LIVE

    with ThreadPoolExecutor(_PROBES_AT_ONCE) as pool:
        states = list(pool.map(ask, described.brokers))
    return {each.broker_id: state for each, state in zip(described.brokers, states, strict=True)}


def _quorum(cluster: Cluster) -> tuple[dict[int, str], dict[int, int]]:
    """Each node's role in the quorum, and how far its copy of the log reaches, where known."""
    asked: list[dict[str, Any]] = [{"topic_name": QUORUM_TOPIC, "partitions": [{"partition_index": 0}]}]
    reply = cluster.call("describe_quorum", topics=asked)
    if reply.error_code:
        raise from_code("cannot describe the quorum", reply.error_code, reply.error_message)
    state = reply.topics[0].partitions[0]
    votes = {each.replica_id: "follower" for each in state.observers}
    votes |= {each.replica_id: "voter" for each in state.current_voters}
    if state.leader_id >= 0:
        votes[state.leader_id] = "leader"
    replicas = (*state.current_voters, *state.observers)
    return votes, {each.replica_id: each.log_end_offset for each in replicas if each.log_end_offset >= 0}
