"""How fast replicas are copied while they are moved: limits that operators set and take away (Kafka's names)."""

from enum import StrEnum

from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.config.topic import MAX_LONG


class Side(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"


def throttled_rate(image: MetadataImage, broker_id: int, side: Side) -> int | None:
    """Bytes a second for all throttled replicas of the broker together; None where there is no limit."""
    text = image.broker_overrides(broker_id).get(f"{side}.replication.throttled.rate")
    return None if text is None or int(text) == MAX_LONG else int(text)


def is_throttled(topic: TopicImage, index: int, broker_id: int, side: Side) -> bool:
    """Whether the limit holds for this replica; the leader's own list names the replicas that it gives away."""
    listed = topic.configs.get(f"{side}.replication.throttled.replicas", "")
    return any(item.strip() in ("*", f"{index}:{broker_id}") for item in listed.split(","))
