"""What a cluster knows about one topic, gathered with admin calls into one value."""

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from millstream.cli.errors import kafka_failure, unknown_topic
from millstream.cli.kafka import REQUEST_TIMEOUT_S, result_of


@dataclass(frozen=True, slots=True)
class PartitionView:
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None

    @property
    def messages(self) -> int | None:
        """Offsets between start and end; compaction and transactions leave some of them empty."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class TopicView:
    topic: str
    topic_id: str
    partitions: tuple[PartitionView, ...]
    configs: dict[str, str | None]

    @property
    def messages(self) -> int:
        return sum(partition.messages or 0 for partition in self.partitions)

    def as_document(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "messages": self.messages,
            "partitions": [
                {
                    "partition": view.partition,
                    "leader": view.leader,
                    "replicas": view.replicas,
                    "isr": view.isr,
                    "start_offset": view.start_offset,
                    "end_offset": view.end_offset,
                    "messages": view.messages,
                }
                for view in self.partitions
            ],
            "configs": self.configs,
        }


def describe_topic(client: AdminClient, topic: str, bootstrap: str) -> TopicView:
    future = client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)[topic]
    try:
        description = future.result(timeout=REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise unknown_topic(topic, bootstrap) from error
        raise kafka_failure(f"cannot describe topic {topic!r}", error.args[0], bootstrap) from error
    indexes = [partition.id for partition in description.partitions if partition.leader is not None]
    starts = offsets_of(client, topic, indexes, OffsetSpec.earliest())
    ends = offsets_of(client, topic, indexes, OffsetSpec.latest())
    return TopicView(
        topic=topic,
        topic_id=str(description.topic_id),
        partitions=tuple(
            PartitionView(
                partition=partition.id,
                leader=partition.leader.id if partition.leader is not None else None,
                replicas=tuple(node.id for node in partition.replicas),
                isr=tuple(node.id for node in partition.isr),
                start_offset=starts.get(partition.id),
                end_offset=ends.get(partition.id),
            )
            for partition in sorted(description.partitions, key=lambda partition: partition.id)
        ),
        configs=changed_configs(client, topic, bootstrap),
    )


def offsets_of(client: AdminClient, topic: str, indexes: list[int], spec: Any) -> dict[int, int]:
    """One offset for each partition; a partition that cannot answer is left out, and shown without."""
    if not indexes:
        return {}
    asked = {TopicPartition(topic, index): spec for index in indexes}
    offsets: dict[int, int] = {}
    for partition, future in client.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            offsets[partition.partition] = future.result(timeout=REQUEST_TIMEOUT_S + 5).offset
        except KafkaException:
            continue
    return offsets


def changed_configs(client: AdminClient, topic: str, bootstrap: str) -> dict[str, str | None]:
    """The settings whose value is not the default."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    future = client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    entries = result_of(f"cannot read the configuration of topic {topic!r}", future, bootstrap)
    return {name: entry.value for name, entry in sorted(entries.items()) if not entry.is_default}
