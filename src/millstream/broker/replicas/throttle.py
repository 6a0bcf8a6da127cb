"""Limits the copying of replicas to the rates that operators set, to leave the rest of the network to clients.

Only replicas that are not in sync are limited: an in-sync one would leave the set, and producers wait for it.
"""

from enum import StrEnum

from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.cluster.metadata.service import MetadataService
from millstream.config.topic import MAX_LONG
from millstream.runtime.clock import Clock


class Side(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"


def throttled_rate(image: MetadataImage, broker_id: int, side: Side) -> int | None:
    """Bytes a second for all throttled replicas of the broker together; None where there is no limit."""
    text = image.broker_overrides(broker_id).get(f"{side}.replication.throttled.rate")
    return None if text is None or int(text) == MAX_LONG else int(text)


def is_throttled(topic: TopicImage, index: int, broker_id: int, side: Side) -> bool:
    """Whether the limit of this side of the broker applies to its replica of the partition."""
    listed = topic.configs.get(f"{side}.replication.throttled.replicas", "")
    return any(item.strip() in ("*", f"{index}:{broker_id}") for item in listed.split(","))


class ReplicaThrottle:
    """One side of this broker: what it sends as a leader, or what it fetches as a follower."""

    def __init__(self, node_id: int, metadata: MetadataService, clock: Clock, side: Side) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._clock = clock
        self._side = side
        self._image: MetadataImage | None = None
        self._rate: int | None = None
        self._free_at = 0.0

    def spend(self, partition: Partition, follower: int, size_bytes: int) -> None:
        """Note copied bytes of a replica; if it is throttled, the next bytes have to wait."""
        if size_bytes and (rate := self._rate_for(partition, follower)) is not None:
            now = self._clock.monotonic()
            self._free_at = max(self._free_at, now) + size_bytes / rate

    def wait_seconds(self, partition: Partition, follower: int) -> float:
        """How long the next bytes of this replica have to wait."""
        if self._rate_for(partition, follower) is None:
            return 0.0
        return max(0.0, self._free_at - self._clock.monotonic())

    def _rate_for(self, partition: Partition, follower: int) -> int | None:
        image = self._metadata.image
        if image is not self._image:
            self._image = image
            self._rate = throttled_rate(image, self._node_id, self._side)
        if self._rate is None:
            return None
        topic = image.topic(partition.topic)
        if topic is None or partition.index >= len(topic.partitions):
            return None
        is_in_sync = follower in topic.partitions[partition.index].isr
        if is_in_sync or not is_throttled(topic, partition.index, self._node_id, self._side):
            return None
        return self._rate
