"""Partitions: adding them to existing topics."""

from collections import Counter

import msgspec

from millstream.cluster.metadata.assignment import Placer, check_manual, creation_records, placement_of
from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.cluster.metadata.names import is_protected
from millstream.cluster.metadata.records import MetadataRecord
from millstream.cluster.placement import Replicas, Wanted
from millstream.protocol.errors import ErrorCode, KafkaError


class PartitionIncrease(msgspec.Struct, frozen=True):
    """`count` is the new total; `assignments`, when given, name the replicas of each added partition."""

    topic: str
    count: int
    assignments: tuple[Replicas, ...] | None = None


class IncreaseOutcome(msgspec.Struct, frozen=True):
    topic: str
    error: KafkaError | None = None


class CreatePartitions(msgspec.Struct, frozen=True):
    topics: tuple[PartitionIncrease, ...]
    validate_only: bool = False
    defaults: Defaults = msgspec.field(default_factory=Defaults)
    # How many partitions earlier commands of the same request have created.
    earlier_partitions: int = 0

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[tuple[IncreaseOutcome, ...]]:
        times = Counter(increase.topic for increase in self.topics)
        records: list[MetadataRecord] = []
        outcomes: dict[str, IncreaseOutcome] = {}
        broker_configs = self.defaults.broker_configs(image)
        placer = Placer(image, self.defaults.virtual_nodes)
        for increase in self.topics:
            if increase.topic in outcomes:
                continue
            try:
                if times[increase.topic] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                topic = _find_growable(image, increase)
                added = increase.count - len(topic.partitions)
                self.defaults.check_room(image, len(records), added, self.earlier_partitions)
                placement = placement_of(topic.configs, broker_configs)
                assignments = _assign(image, topic, increase, placer, placement)
                records += creation_records(image, topic.topic_id, len(topic.partitions), assignments)
                outcomes[increase.topic] = IncreaseOutcome(increase.topic)
            except KafkaError as error:
                outcomes[increase.topic] = IncreaseOutcome(increase.topic, error.as_value())
        return Decision(() if self.validate_only else tuple(records), tuple(outcomes.values()))


def _find_growable(image: MetadataImage, increase: PartitionIncrease) -> TopicImage:
    topic = image.topics.get(increase.topic)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{increase.topic}' does not exist.")
    if is_protected(topic.name):
        # Keys are mapped by the number of partitions: with more of them, stored keys would not be found.
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"the topic {topic.name} is internal; its partitions are fixed"
        )
    current = len(topic.partitions)
    if increase.count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if increase.count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} has {current} partition(s); {increase.count} is not an increase.",
        )
    return topic


def _assign(
    image: MetadataImage, topic: TopicImage, increase: PartitionIncrease, placer: Placer, placement: str
) -> list[Replicas]:
    added = increase.count - len(topic.partitions)
    first = topic.partitions[0]
    replication_factor = len(first.replicas) - len(first.removing)
    if increase.assignments is None:
        wanted = Wanted(topic.name, len(topic.partitions), added, replication_factor)
        return placer.place(wanted, placement)
    if len(increase.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but {len(increase.assignments)} assignment(s)"
            " were specified.",
        )
    check_manual(image, increase.assignments, replication_factor)
    return list(increase.assignments)
