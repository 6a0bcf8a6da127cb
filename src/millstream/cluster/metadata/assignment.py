"""Which brokers hold a new partition: as the placement says, or as the client asked after a check."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from millstream.cluster.metadata.election import is_usable
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import PartitionCreated
from millstream.cluster.placement import (
    VIRTUAL_NODES,
    Candidate,
    Replicas,
    Wanted,
    placement_named,
    with_load,
)
from millstream.config.definitions import resolve_topic_config
from millstream.protocol.errors import ErrorCode, KafkaError


class Placer:
    """Places the partitions of one command, counting those that it has already placed."""

    __slots__ = ("_ordinal", "_unusable", "_usable", "_virtual_nodes")

    def __init__(self, image: MetadataImage, virtual_nodes: int = VIRTUAL_NODES) -> None:
        self._virtual_nodes = virtual_nodes
        self._ordinal = image.partition_count
        candidates = [
            Candidate(broker_id, broker.rack, *image.loads.get(broker_id, (0, 0)))
            for broker_id, broker in sorted(image.brokers.items())
        ]
        self._usable = [each for each in candidates if is_usable(image.brokers, each.broker_id)]
        self._unusable = [each for each in candidates if not is_usable(image.brokers, each.broker_id)]

    def place(self, wanted: Wanted, placement: str) -> list[Replicas]:
        """Replicas of the wanted partitions; the first of each is the preferred leader.

        Brokers that are not live get replicas only where there are too few live ones.
        """
        here, away, factor = self._usable, self._unusable, wanted.replication_factor
        if not here or factor > len(here) + len(away):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {factor} time(s): the target replication factor"
                f" of {factor} cannot be reached because only {len(here) + len(away)} broker(s) are"
                f" registered, {len(here)} of them alive.",
            )
        if len(here) == 1 and factor == 1:
            return [(here[0].broker_id,)] * wanted.count
        chosen = placement_named(placement, self._virtual_nodes)
        wanted = replace(wanted, ordinal=self._ordinal, replication_factor=min(factor, len(here)))
        placed = chosen.place(here, wanted)
        if factor > len(here):
            others = chosen.place(away, replace(wanted, replication_factor=factor - len(here)))
            placed = [first + second for first, second in zip(placed, others, strict=True)]
        self._ordinal += len(placed)
        self._usable, self._unusable = with_load(here, placed), with_load(away, placed)
        return placed


def placement_of(configs: Mapping[str, str], broker_configs: Mapping[str, str]) -> str:
    """The placement name for a topic with these topic settings and broker settings."""
    return resolve_topic_config(configs, broker_configs).placement


def check_manual(
    image: MetadataImage, assignments: Sequence[Replicas], replication_factor: int | None
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless every list is usable and all are of one length."""
    for index, replicas in enumerate(assignments):
        check_replicas(image, replicas)
        if not any(is_usable(image.brokers, broker) for broker in replicas):
            raise _invalid(
                f"All brokers of the manual assignment {list(replicas)} of partition {index} are fenced or"
                " shutting down."
            )
        if replication_factor is None:
            replication_factor = len(replicas)
        if len(replicas) != replication_factor:
            raise _invalid(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but"
                f" other partitions have {replication_factor} replica(s)."
            )


def check_replicas(image: MetadataImage, replicas: Replicas) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless these are registered brokers, each named once."""
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    if len(set(replicas)) != len(replicas):
        raise _invalid(f"The manual partition assignment {list(replicas)} names a broker more than once.")
    for broker in replicas:
        if broker not in image.brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )


def creation_records(
    image: MetadataImage, topic_id: UUID, first_index: int, assignments: Sequence[Replicas]
) -> list[PartitionCreated]:
    """The first usable replica leads, and all usable ones are in sync."""
    usable = frozenset(broker for broker in image.brokers if is_usable(image.brokers, broker))
    records = []
    for index, replicas in enumerate(assignments, first_index):
        isr = replicas if usable.issuperset(replicas) else tuple(b for b in replicas if b in usable)
        records.append(PartitionCreated(topic_id, index, replicas, isr, isr[0]))
    return records


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
