"""Which brokers hold a new partition: as the placement says, or as the client asked after a check."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import PartitionCreated
from millstream.cluster.placement.candidate import Candidate, Replicas, Wanted
from millstream.cluster.placement.choice import PLACEMENTS
from millstream.protocol.errors import ErrorCode, KafkaError


class Placer:
    """Places the partitions of one command; what it placed before counts for what comes after."""

    __slots__ = ("_candidates", "_ordinal", "_placement")

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
        self._candidates = {
            broker.broker_id: Candidate(
                broker.broker_id, broker.rack, leaders[broker.broker_id], replicas[broker.broker_id]
            )
            for broker in image.live_brokers
        }

    def place(self, topic: str, first_index: int, count: int, replication_factor: int) -> list[Replicas]:
        """Replicas of `count` partitions from `first_index` on; the first of each is the preferred leader."""
        candidates = self._candidates
        if replication_factor > len(candidates):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): the target replication factor"
                f" of {replication_factor} cannot be reached because only {len(candidates)} broker(s) are alive.",
            )
        if len(candidates) == 1:
            return [tuple(candidates)] * count
        wanted = Wanted(topic, first_index, count, replication_factor, self._ordinal)
        placed = self._placement.place(list(candidates.values()), wanted)
        self._note(placed)
        return placed

    def _note(self, placed: Sequence[Replicas]) -> None:
        self._ordinal += len(placed)
        if self._placement.needs_load:
            for replicas in placed:
                for place, broker in enumerate(replicas):
                    known = self._candidates[broker]
                    self._candidates[broker] = replace(
                        known, leaders=known.leaders + (place == 0), replicas=known.replicas + 1
                    )


def check_manual(
    image: MetadataImage, assignments: Sequence[Replicas], replication_factor: int | None
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless every list is usable and all are of one length."""
    for replicas in assignments:
        if not replicas:
            raise _invalid("The manual partition assignment includes an empty replica list.")
        if len(set(replicas)) != len(replicas):
            raise _invalid(f"The manual partition assignment {list(replicas)} names a broker more than once.")
        for broker in replicas:
            if not image.is_live(broker):
                raise _invalid(
                    f"The manual partition assignment includes broker {broker}, but no such broker is alive."
                )
        if replication_factor is None:
            replication_factor = len(replicas)
        if len(replicas) != replication_factor:
            raise _invalid(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but"
                f" other partitions have {replication_factor} replica(s)."
            )


def creation_records(
    topic_id: UUID, first_index: int, assignments: Sequence[Replicas]
) -> list[PartitionCreated]:
    return [
        PartitionCreated(topic_id, index, replicas, replicas, replicas[0])
        for index, replicas in enumerate(assignments, first_index)
    ]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
