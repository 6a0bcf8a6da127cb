"""Which brokers hold a new partition: placed in turn, or as the client asked after a check."""

from collections.abc import Sequence
from uuid import UUID

from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import PartitionCreated
from millstream.protocol.errors import ErrorCode, KafkaError

Replicas = tuple[int, ...]


def place_replicas(
    image: MetadataImage, first_index: int, count: int, replication_factor: int
) -> list[Replicas]:
    """Replicas of `count` partitions in turn around the brokers; the first is the preferred leader."""
    brokers = [broker.broker_id for broker in image.live_brokers]
    size = len(brokers)
    if replication_factor > size:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): the target replication factor"
            f" of {replication_factor} cannot be reached because only {size} broker(s) are alive.",
        )
    return [
        tuple(brokers[(first_index + partition + replica) % size] for replica in range(replication_factor))
        for partition in range(count)
    ]


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
