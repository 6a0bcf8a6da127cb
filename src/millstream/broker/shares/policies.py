"""A queue's settings from its group and topic, in the cluster's metadata."""

from collections.abc import Mapping

import msgspec

from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.config.share_table import GroupConfig, resolve_group_config
from millstream.config.topic import TopicConfig
from millstream.coordinator.shares.policy import Order, QueuePolicy


class Rules(msgspec.Struct, frozen=True):
    """All settings for one group on one topic."""

    group: GroupConfig
    topic: TopicConfig
    is_default: bool
    """Whether the group's settings do not say where it begins."""

    @property
    def read_committed(self) -> bool:
        return self.group.share_isolation_level == "read_committed"

    @property
    def keeps_count(self) -> bool:
        """Whether writes or deletions depend on the groups' progress."""
        return self.topic.queue_delete_settled or self.topic.queue_max_depth >= 0

    @property
    def policy(self) -> QueuePolicy:
        group, topic = self.group, self.topic
        return QueuePolicy(
            lock_ms=group.share_record_lock_duration_ms,
            delivery_count_limit=group.share_delivery_count_limit,
            max_locks=group.share_partition_max_record_locks,
            renew_enabled=group.share_renew_acknowledge_enable,
            dead_letters=group.dead_letter_topic is not None,
            backoff_ms=group.queue_retry_backoff_ms,
            backoff_factor=group.queue_retry_backoff_multiplier,
            backoff_max_ms=group.queue_retry_backoff_max_ms,
            retry_total_ms=group.queue_retry_total_ms,
            order=Order(topic.queue_order),
            reads_headers=topic.queue_headers_enable,
            ttl_ms=topic.queue_ttl_ms,
        )


def rules_of(image: MetadataImage, broker: Mapping[str, str], group_id: str, topic: TopicConfig) -> Rules:
    overrides = image.group_configs.get(group_id, {})
    return Rules(resolve_group_config(overrides, broker), topic, "share.auto.offset.reset" not in overrides)


def named_groups(topic: TopicImage) -> frozenset[str]:
    """The groups in the topic's `queue.groups`."""
    return frozenset(each.strip() for each in topic.configs.get("queue.groups", "").split(","))
