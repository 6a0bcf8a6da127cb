"""Plans which replicas go where, from the present state of a cluster. Nothing here asks or changes a cluster."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from millstream.admin.cluster_view import ClusterView, PartitionView
from millstream.client.admin.settings import SettingsAdmin
from millstream.client.admin.topics import TopicAdmin
from millstream.client.errors import ClientError, ConfigurationError
from millstream.client.positions import TopicPartition
from millstream.client.wire.cluster import Cluster
from millstream.cluster.placement import VIRTUAL_NODES, Candidate, Placed, placement_named, with_load


class Move(msgspec.Struct, frozen=True):
    topic: str
    index: int
    before: tuple[int, ...]
    replicas: tuple[int, ...]

    def as_document(self) -> dict[str, object]:
        """In the format of Kafka's own tool, with the partition's present replicas."""
        return {
            "topic": self.topic,
            "partition": self.index,
            "from": list(self.before),
            "replicas": list(self.replicas),
        }


def rebalanced(view: ClusterView, placement: str, virtual_nodes: int = VIRTUAL_NODES) -> list[Move]:
    """Every partition as the placement assigns it among the live brokers."""
    candidates = [Candidate(each.broker_id, each.rack) for each in view.live_brokers()]
    for each in view.partitions:
        if len(each.replicas) > len(candidates):
            raise ClientError(
                f"{each.name} has {len(each.replicas)} replicas and there would be {len(candidates)} brokers for"
                " them; start those that are fenced, or add one (`millstream cluster status`)"
            )
    placed = [Placed(each.topic, each.index, each.replicas) for each in view.partitions]
    arranged = placement_named(placement, virtual_nodes).arrange(candidates, placed)
    return [
        Move(each.topic, each.index, each.replicas, replicas)
        for each, replicas in zip(placed, arranged, strict=True)
        if replicas != each.replicas
    ]


def evacuated(
    view: ClusterView, broker_id: int, placement: str, virtual_nodes: int = VIRTUAL_NODES
) -> list[Move]:
    """Only this broker's replicas move, to where the placement would have them instead."""
    load = _load(view, without=broker_id)
    moves = []
    for each in view.partitions:
        if broker_id in each.replicas:
            best, load = _substitute(each, load, placement, virtual_nodes)
            replicas = tuple(best if broker == broker_id else broker for broker in each.replicas)
            moves.append(Move(each.topic, each.index, each.replicas, replicas))
    return moves


def led_by_others(view: ClusterView, broker_id: int) -> list[Move]:
    """The broker becomes the last choice where it is the first: nothing is copied, and an election does the rest."""
    return [
        Move(
            each.topic,
            each.index,
            each.replicas,
            (*(other for other in each.replicas if other != broker_id), broker_id),
        )
        for each in view.partitions
        if broker_id == each.replicas[0] and len(each.replicas) > 1
    ]


def with_factor(
    view: ClusterView, partitions: Iterable[PartitionView], factor: int, placement: str
) -> list[Move]:
    """So many replicas for each partition. Present ones stay, the leader and in-sync ones first."""
    load = _load(view)
    moves = []
    for each in partitions:
        kept = sorted(each.replicas, key=lambda broker: (broker != each.leader, broker not in each.isr))[
            :factor
        ]
        # The preferred leader stays first.
        replicas = tuple(sorted(kept, key=each.replicas.index))
        while len(replicas) < factor:
            best, load = _substitute(replace(each, replicas=replicas), load, placement, VIRTUAL_NODES)
            replicas = (*replicas, best)
        if replicas != each.replicas:
            moves.append(Move(each.topic, each.index, each.replicas, replicas))
    return moves


def moves_to(partitions: Iterable[PartitionView], replicas: tuple[int, ...]) -> list[Move]:
    """The same replicas for each partition."""
    return [Move(each.topic, each.index, each.replicas, replicas) for each in partitions]


def moves_in(text: str, known: Iterable[PartitionView]) -> list[Move]:
    """A plan in the format of Kafka's own tool: `{"partitions": [{"topic", "partition", "replicas"}, ...]}`."""
    try:
        listed = [
            (each["topic"], int(each["partition"]), tuple(map(int, each["replicas"])))
            for each in json.loads(text)["partitions"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f'it is not a plan: {error}; write {{"partitions": [{{"topic": "t", "partition": 0,'
            ' "replicas": [1, 2, 3]}]}'
        ) from error
    there = {(each.topic, each.index): each for each in known}
    for topic, index, _ in listed:
        if (topic, index) not in there:
            raise ClientError(f"there is no partition {topic}:{index}")
    return [Move(topic, index, there[topic, index].replicas, replicas) for topic, index, replicas in listed]


def chosen(known: Sequence[PartitionView], wanted: Iterable[tuple[str, int | None]]) -> list[PartitionView]:
    """The named partitions; a topic without a number stands for all of its partitions. An unknown name is an error."""
    found = []
    for topic, index in wanted:
        fitting = [each for each in known if each.topic == topic and index in (None, each.index)]
        if not fitting:
            raise ClientError(f"there is no partition {topic}" + ("" if index is None else f":{index}"))
        found += fitting
    return found


def _load(view: ClusterView, without: int | None = None) -> list[Candidate]:
    others = [each for each in view.live_brokers() if each.broker_id != without]
    candidates = (Candidate(each.broker_id, each.rack) for each in others)
    return list(with_load(candidates, [each.replicas for each in view.partitions]))


def _substitute(
    partition: PartitionView, load: list[Candidate], placement: str, virtual_nodes: int
) -> tuple[int, list[Candidate]]:
    """The best broker without the partition, and the load with it."""
    free = [other for other in load if other.broker_id not in partition.replicas]
    if not free:
        raise ClientError(
            f"{partition.name} has replicas on {list(partition.replicas)} and no other live broker is left for it;"
            " add a broker, or give it fewer replicas with `millstream cluster reassign`"
        )
    placed = Placed(partition.topic, partition.index, partition.replicas)
    best = placement_named(placement, virtual_nodes).substitutes(free, placed)[0].broker_id
    return best, [
        replace(other, replicas=other.replicas + 1) if other.broker_id == best else other for other in load
    ]


class _Inventory(TopicAdmin, SettingsAdmin):
    """Topics and their settings."""


def brokers_document(cluster: Cluster) -> dict[str, Any]:
    found = TopicAdmin(cluster).metadata()
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "brokers": [
            {"id": each.id, "host": each.host, "port": each.port, "rack": each.rack} for each in found.brokers
        ],
    }


def topics_document(cluster: Cluster) -> dict[str, Any]:
    """All topics but internal ones, with the settings set for each topic. A partition whose leader does not answer
    has no offsets.
    """
    admin = _Inventory(cluster)
    topics = admin.list_topics()
    places = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
    starts, ends = admin.known_offsets(places, "earliest"), admin.known_offsets(places, "latest")
    documents = []
    for topic in topics:
        configs = {
            name: each.value
            for name, each in admin.topic_configs(topic.name).items()
            if each.source == "topic"
        }
        partitions = [
            {
                "id": each.partition,
                "leader": each.leader,
                "replicas": each.replicas,
                "isr": each.in_sync_replicas,
                "first_offset": starts.get(TopicPartition(topic.name, each.partition)),
                "high_watermark": ends.get(TopicPartition(topic.name, each.partition)),
            }
            for each in topic.partitions
        ]
        documents.append(
            {
                "name": topic.name,
                "id": topic.topic_id,
                "partition_count": len(topic.partitions),
                "replication_factor": topic.replication_factor,
                "configs": configs,
                "partitions": partitions,
            }
        )
    return {"topics": documents}
