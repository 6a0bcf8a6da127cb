"""Which brokers hold a new partition: as the placement says, or as the client asked after a check."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from millstream.cluster.metadata.election import is_usable
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import PartitionCreated
from millstream.cluster.placement.candidate import Candidate, Replicas, Wanted
from millstream.cluster.placement.choice import PLACEMENTS
from millstream.protocol.errors import ErrorCode, KafkaError


class Placer:
    """Places the partitions of one command; what it placed before counts for what comes after."""

    __slots__ = ("_away", "_here", "_ordinal", "_placement")

    def __init__(self, image: MetadataImage, placement: str) -> None:
        self._placement = PLACEMENTS[placement]
        self._ordinal = image.partition_count
        leaders: Counter[int] = Counter()
        replicas: Counter[int] = Counter()
        if self._placement.needs_load:
            for topic in image.topics.values():
                for partition in topic.partitions:
                    leaders[partition.leader] += 1
                    replicas.update(partition.replicas)
        candidates = [
            Candidate(broker_id, broker.rack, leaders[broker_id], replicas[broker_id])
            for broker_id, broker in sorted(image.brokers.items())
        ]
        self._here = {each.broker_id: each for each in candidates if is_usable(image.brokers, each.broker_id)}
        self._away = {each.broker_id: each for each in candidates if each.broker_id not in self._here}

    def place(self, topic: str, first_index: int, count: int, replication_factor: int) -> list[Replicas]:
        """Replicas of `count` partitions from `first_index` on; the first of each is the preferred leader.

        Brokers that are away are given replicas only where those that are here are too few.
        """
        here, away = self._here, self._away
        if not here or replication_factor > len(here) + len(away):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): the target replication factor"
                f" of {replication_factor} cannot be reached because only {len(here) + len(away)} broker(s) are"
                f" registered, {len(here)} of them alive.",
            )
        if len(here) == 1 and replication_factor == 1:
            return [tuple(here)] * count
        wanted = Wanted(topic, first_index, count, min(replication_factor, len(here)), self._ordinal)
        placed = self._placement.place(list(here.values()), wanted)
        if replication_factor > len(here):
            rest = replace(wanted, replication_factor=replication_factor - len(here))
            others = self._placement.place(list(away.values()), rest)
            placed = [first + second for first, second in zip(placed, others, strict=True)]
        self._note(placed)
        return placed

    def _note(self, placed: Sequence[Replicas]) -> None:
        self._ordinal += len(placed)
        if self._placement.needs_load:
            for replicas in placed:
                for place, broker in enumerate(replicas):
                    candidates = self._here if broker in self._here else self._away
                    known = candidates[broker]
                    candidates[broker] = replace(
                        known, leaders=known.leaders + (place == 0), replicas=known.replicas + 1
                    )


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
    """Led by the first replica that is here, and in sync are all that are."""
    usable = frozenset(broker for broker in image.brokers if is_usable(image.brokers, broker))
    records = []
    for index, replicas in enumerate(assignments, first_index):
        isr = replicas if usable.issuperset(replicas) else tuple(b for b in replicas if b in usable)
        records.append(PartitionCreated(topic_id, index, replicas, isr, isr[0]))
    return records


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
