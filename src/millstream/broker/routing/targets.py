"""Which node answers a request, by this node's metadata."""

from typing import NamedTuple, Protocol
from uuid import UUID

from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.coordinator.definition import partition_for
from millstream.protocol.internal_topics import OFFSETS_TOPIC


def topic_of(image: MetadataImage, topic: str | bytes) -> TopicImage | None:
    """The topic by its name, or by the 16 bytes of its id."""
    return image.topic_by_id(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topic(topic)


def leader_of(image: MetadataImage, topic: str | bytes, index: int) -> int | None:
    """None where there is no such partition, or it has no leader."""
    found = topic_of(image, topic)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    leader = found.partitions[index].leader
    return leader if image.is_live(leader) else None


class Routing(Protocol):
    """Topics for which a node answers clients instead of the topics' leaders."""

    @property
    def forwards(self) -> bool:
        """Whether there may be something to forward."""
        ...

    @property
    def forwards_by_default(self) -> bool:
        """Whether requests for groups, and for topics without a setting of their own, are forwarded."""
        ...

    @property
    def shows_one_node(self) -> bool:
        """Whether clients are shown this node alone."""
        ...

    def is_proxied(self, topic: TopicImage) -> bool: ...


class Targets(NamedTuple):
    """The nodes to which a client's requests are forwarded."""

    image: MetadataImage
    me: int
    routing: Routing

    def leader(self, topic: str | bytes, index: int) -> int | None:
        """None where no node can be asked, because this node's own answer is the right refusal, and for a topic whose
        real leaders clients are shown.
        """
        leader = leader_of(self.image, topic, index)
        if leader is None or leader == self.me:
            return leader
        found = topic_of(self.image, topic)
        return leader if found is not None and self.routing.is_proxied(found) else None


def coordinator_of(image: MetadataImage, group_id: str) -> int | None:
    topic = image.topic(OFFSETS_TOPIC)
    if topic is None:
        return None
    return leader_of(image, OFFSETS_TOPIC, partition_for(group_id, len(topic.partitions)))
