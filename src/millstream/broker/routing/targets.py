"""Which node answers for what, from the metadata as this node knows it."""

from uuid import UUID

from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.coordinator.placement import partition_for
from millstream.protocol.internal_topics import OFFSETS_TOPIC


def topic_of(image: MetadataImage, topic: str | bytes) -> TopicImage | None:
    """By its name, or by the 16 bytes of its id."""
    return image.topic_by_id(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topic(topic)


def leader_of(image: MetadataImage, topic: str | bytes, index: int) -> int | None:
    """None where there is no such partition, and where nobody leads it."""
    found = topic_of(image, topic)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    leader = found.partitions[index].leader
    return leader if image.is_live(leader) else None


def coordinator_of(image: MetadataImage, group_id: str) -> int | None:
    topic = image.topic(OFFSETS_TOPIC)
    if topic is None:
        return None
    return leader_of(image, OFFSETS_TOPIC, partition_for(group_id, len(topic.partitions)))
