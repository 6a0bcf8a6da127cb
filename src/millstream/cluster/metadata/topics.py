"""Topics: creating and deleting them."""

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import msgspec
from msgspec.structs import replace

from millstream.cluster.metadata.assignment import Placer, check_manual, creation_records, placement_of
from millstream.cluster.metadata.commands import Decision, NewId, slices_of
from millstream.cluster.metadata.configs import check_topic_configs
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage, TopicImage, metric_name
from millstream.cluster.metadata.names import colliding_topic, invalid_name_reason, is_protected
from millstream.cluster.metadata.records import (
    ConfigChanged,
    ConfigResource,
    MetadataRecord,
    TopicCreated,
    TopicDeleted,
)
from millstream.cluster.placement import Replicas, Wanted
from millstream.config.definitions import asks_for_nothing
from millstream.protocol.errors import ErrorCode, KafkaError


class NewTopic(msgspec.Struct, frozen=True):
    """-1 for partitions or replication factor asks for the default; `assignments` are (index, replicas)."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, Replicas], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


class CreatedTopic(msgspec.Struct, frozen=True):
    """The topic as created (or as it would be, with validate-only), or the error."""

    name: str
    topic_id: UUID | None = None
    partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = msgspec.field(default_factory=dict)
    error: KafkaError | None = None


class CreateTopics(msgspec.Struct, frozen=True):
    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    defaults: Defaults = msgspec.field(default_factory=Defaults)
    # Only the node's own coordinators set it.
    allow_internal: bool = False
    # How many partitions earlier commands of the same request have created.
    earlier_partitions: int = 0

    def decide(self, image: MetadataImage, new_id: NewId, /) -> Decision[tuple[CreatedTopic, ...]]:
        times = Counter(topic.name for topic in self.topics)
        records: list[MetadataRecord] = []
        outcomes: dict[str, CreatedTopic] = {}
        metric_names: dict[str, str] = {}
        broker_configs = self.defaults.broker_configs(image)
        placer = Placer(image, self.defaults.virtual_nodes)
        pending = 0
        for topic in self.topics:
            if topic.name in outcomes:
                continue
            try:
                if times[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                self._check_name(image, topic.name, metric_names)
                configs = _new_topic_configs(topic, broker_configs)
                placement = placement_of(configs, broker_configs)
                assignments = self._assign(image, topic, placer, placement, pending)
            except KafkaError as error:
                outcomes[topic.name] = CreatedTopic(topic.name, error=error.as_value())
                continue
            pending += len(assignments)
            metric_names[metric_name(topic.name)] = topic.name
            topic_id = None if self.validate_only else new_id()
            if topic_id is not None:
                records.append(TopicCreated(topic.name, topic_id))
                records += [ConfigChanged(ConfigResource.TOPIC, topic.name, k, v) for k, v in configs.items()]
                records += creation_records(image, topic_id, 0, assignments)
            outcomes[topic.name] = CreatedTopic(
                topic.name, topic_id, len(assignments), len(assignments[0]), configs
            )
        return Decision(tuple(records), tuple(outcomes.values()))

    def _check_name(self, image: MetadataImage, name: str, metric_names: dict[str, str]) -> None:
        reason = invalid_name_reason(name)
        if reason is None and is_protected(name) and not self.allow_internal:
            reason = f"the topic {name} is internal; the cluster creates it when it is needed"
        if reason is None and name not in image.topics:
            other = colliding_topic(image, name) or metric_names.get(metric_name(name))
            if other is not None:
                reason = (
                    f"Topic '{name}' collides with existing topic: {other}; '.' and '_' count as the same"
                )
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if name in image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")

    def _assign(
        self, image: MetadataImage, topic: NewTopic, placer: Placer, placement: str, pending: int
    ) -> list[Replicas]:
        if topic.assignments:
            assignments = _manual_assignments(image, topic)
            self.defaults.check_room(image, pending, len(assignments), self.earlier_partitions)
            return assignments
        partitions, factor = topic.partitions, topic.replication_factor
        if factor == 0 or factor < -1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if partitions == 0 or partitions < -1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions must be larger than 0, or -1 to use the default value.",
            )
        partitions = self.defaults.partitions if partitions == -1 else partitions
        factor = self.defaults.replication_factor if factor == -1 else factor
        self.defaults.check_room(image, pending, partitions, self.earlier_partitions)
        return placer.place(Wanted(topic.name, 0, partitions, factor), placement)


def in_slices(command: CreateTopics, partitions: int) -> list[CreateTopics]:
    """Split into commands of about `partitions` each: topics are created or refused one by one."""

    def cost(topic: NewTopic) -> int:
        count = max(topic.partitions, len(topic.assignments))
        return count if count > 0 else command.defaults.partitions

    slices = slices_of(command.topics, partitions, lambda topic: topic.name, cost)
    return [replace(command, topics=topics) for topics in slices]


class TopicRef(msgspec.Struct, frozen=True):
    """A topic by its name or by its id."""

    name: str | None = None
    topic_id: UUID | None = None


class DeletedTopic(msgspec.Struct, frozen=True):
    name: str | None
    topic_id: UUID | None
    error: KafkaError | None = None


class DeleteTopics(msgspec.Struct, frozen=True):
    topics: tuple[TopicRef, ...]

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[tuple[DeletedTopic, ...]]:
        times = Counter(self.topics)
        records: dict[UUID, MetadataRecord] = {}
        outcomes: dict[TopicRef, DeletedTopic] = {}
        for ref in self.topics:
            if ref in outcomes:
                continue
            try:
                if times[ref] > 1:
                    kind = "id" if ref.name is None else "name"
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
                topic = _find_deletable(image, ref)
                if topic.topic_id in records:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named by name and by id.")
            except KafkaError as error:
                outcomes[ref] = DeletedTopic(ref.name, ref.topic_id, error.as_value())
                continue
            records[topic.topic_id] = TopicDeleted(topic.topic_id)
            outcomes[ref] = DeletedTopic(topic.name, topic.topic_id)
        return Decision(tuple(records.values()), tuple(outcomes.values()))


def _find_deletable(image: MetadataImage, ref: TopicRef) -> TopicImage:
    if ref.name is not None and ref.topic_id is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if ref.topic_id is not None:
        topic = image.topics_by_id.get(ref.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    elif ref.name is not None:
        topic = image.topics.get(ref.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{ref.name}' does not exist.")
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if is_protected(topic.name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"the topic {topic.name} is internal and cannot be deleted"
        )
    return topic


def _manual_assignments(image: MetadataImage, topic: NewTopic) -> list[Replicas]:
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.partitions not in (-1, len(topic.assignments)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_index = dict(topic.assignments)
    if len(by_index) != len(topic.assignments):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual assignment names a partition more than once."
        )
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Partitions should be a consecutive 0-based integer sequence in a manual assignment.",
        )
    assignments = [by_index[index] for index in range(len(by_index))]
    check_manual(image, assignments, None)
    return assignments


def _new_topic_configs(topic: NewTopic, broker_configs: Mapping[str, str]) -> dict[str, str]:
    configs: dict[str, str] = {}
    for key, value in topic.configs:
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic config {key}.")
        if key in configs:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"The config {key} is given more than once.")
        if not asks_for_nothing(key, value):
            configs[key] = value
    check_topic_configs(configs, broker_configs)
    return configs
