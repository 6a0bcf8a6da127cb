"""What a cluster is made of at this moment: brokers, votes, and how its partitions fare."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from millstream.cli.cluster_calls import ClusterCalls
from millstream.cli.leaderless import Leaderless, leaderless_of

QUORUM_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class PartitionView:
    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokerView:
    broker_id: int
    address: str
    rack: str | None
    is_fenced: bool
    quorum: str
    """`leader`, `voter` or `follower` of the metadata log; empty for one that is not in it."""
    log_end: int | None
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str
    controller: int
    brokers: tuple[BrokerView, ...]
    partitions: tuple[PartitionView, ...]
    reassigning: int
    missing_voters: tuple[int, ...] = ()
    """Voters that are not registered as brokers."""
    unled: tuple[Leaderless, ...] = ()
    """Why partitions have no leader."""

    @property
    def leaderless(self) -> list[PartitionView]:
        return [each for each in self.partitions if each.leader < 0]

    @property
    def under_replicated(self) -> list[PartitionView]:
        return [each for each in self.partitions if len(each.isr) < len(each.replicas)]

    @property
    def not_preferred(self) -> list[PartitionView]:
        return [each for each in self.partitions if 0 <= each.leader != each.replicas[0]]

    @property
    def is_healthy(self) -> bool:
        return (
            self.controller >= 0
            and not self.leaderless
            and not self.under_replicated
            and not self.missing_voters
            and not any(each.is_fenced for each in self.brokers)
        )

    def live_brokers(self) -> list[BrokerView]:
        return [each for each in self.brokers if not each.is_fenced]

    def as_document(self) -> dict[str, object]:
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "healthy": self.is_healthy,
            "brokers": [
                {
                    "id": each.broker_id,
                    "address": each.address,
                    "rack": each.rack,
                    "fenced": each.is_fenced,
                    "quorum": each.quorum,
                    "log_end": each.log_end,
                    "leaders": each.leaders,
                    "replicas": each.replicas,
                }
                for each in self.brokers
            ],
            "voters_away": list(self.missing_voters),
            "topics": len({each.topic for each in self.partitions}),
            "partitions": len(self.partitions),
            "leaderless": [f"{each.topic}-{each.index}" for each in self.leaderless],
            "without_leader": [each.as_document() for each in self.unled],
            "under_replicated": [f"{each.topic}-{each.index}" for each in self.under_replicated],
            "not_preferred": len(self.not_preferred),
            "reassigning": self.reassigning,
        }


def view_cluster(calls: ClusterCalls) -> ClusterView:
    described = calls.checked("cannot describe the cluster", "describe_cluster", include_fenced_brokers=True)
    votes, ends = _quorum(calls)
    partitions = partitions_of(calls)
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(broker for each in partitions for broker in each.replicas)
    moving = calls.call("list_partition_reassignments", topics=None)
    brokers = tuple(
        BrokerView(
            each.broker_id,
            f"{each.host}:{each.port}",
            each.rack,
            each.is_fenced,
            votes.get(each.broker_id, ""),
            ends.get(each.broker_id),
            leaders[each.broker_id],
            replicas[each.broker_id],
        )
        for each in described.brokers
    )
    known = {each.broker_id for each in brokers}
    return ClusterView(
        described.cluster_id,
        described.controller_id,
        brokers,
        tuple(partitions),
        sum(len(topic.partitions) for topic in moving.topics),
        tuple(sorted(node for node, vote in votes.items() if vote != "follower" and node not in known)),
        leaderless_of(calls, {each.topic for each in partitions if each.leader < 0}),
    )


def partitions_of(calls: ClusterCalls) -> list[PartitionView]:
    """All partitions, those of internal topics too, by topic and number."""
    reply = calls.call("metadata", topics=None, allow_auto_topic_creation=False)
    return sorted(
        (
            PartitionView(
                topic.name, each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes
            )
            for topic in reply.topics
            for each in topic.partitions
        ),
        key=lambda each: (each.topic, each.index),
    )


def _quorum(calls: ClusterCalls) -> tuple[dict[int, str], dict[int, int]]:
    """What each node is in the quorum, and how far its copy of the log reaches where that is known."""
    state = _ask_quorum(calls).topics[0].partitions[0]
    votes = {each.replica_id: "follower" for each in state.observers}
    votes |= {each.replica_id: "voter" for each in state.current_voters}
    if state.leader_id >= 0:
        votes[state.leader_id] = "leader"
    replicas = (*state.current_voters, *state.observers)
    return votes, {each.replica_id: each.log_end_offset for each in replicas if each.log_end_offset >= 0}


def _ask_quorum(calls: ClusterCalls) -> Any:
    asked: list[dict[str, Any]] = [{"topic_name": QUORUM_TOPIC, "partitions": [{"partition_index": 0}]}]
    return calls.checked("cannot describe the quorum", "describe_quorum", topics=asked)
