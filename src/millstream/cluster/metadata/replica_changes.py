"""Partition changes that follow when brokers come, go, or change."""

from collections.abc import Callable, Iterable, Iterator

from millstream.cluster.metadata.difference import partition_changed
from millstream.cluster.metadata.election import NO_LOSSES, Losses, next_state, rules_of
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.records import PartitionChanged

Concerns = Callable[[PartitionImage], bool]


def after_loss_of(
    broker_id: int, image: MetadataImage, losses: Losses = NO_LOSSES
) -> Iterator[PartitionChanged]:
    """In `image` the broker is fenced, shutting down, removed, or back after losing records."""

    def counts_on_it(p: PartitionImage) -> bool:
        return (
            broker_id in p.isr
            or broker_id in p.elr
            or p.last_known_leader == broker_id
            or any(each.broker_id == broker_id for each in p.last_known_elr)
        )

    return _changes(image, image.topics.values(), counts_on_it, losses)


def after_return_of(broker_id: int, image: MetadataImage) -> Iterator[PartitionChanged]:
    """Elections for partitions without a leader; elsewhere the leader adds the broker to the in-sync set later."""
    return _changes(
        image, image.topics.values(), lambda p: p.leader == NO_LEADER and broker_id in p.replicas, NO_LOSSES
    )


def after_new_rules(image: MetadataImage, topics: Iterable[TopicImage]) -> Iterator[PartitionChanged]:
    """Elections after `min.insync.replicas` or the rule for unclean leaders changed for these topics."""
    return _changes(
        image, topics, lambda p: bool(p.elr or p.last_known_elr) or p.leader == NO_LEADER, NO_LOSSES
    )


def _changes(
    image: MetadataImage, topics: Iterable[TopicImage], concerns: Concerns, losses: Losses
) -> Iterator[PartitionChanged]:
    brokers = image.brokers
    for topic in topics:
        rules = None
        for p in topic.partitions:
            if not concerns(p):
                continue
            if rules is None:
                rules = rules_of(image, topic)
            after = next_state(p, brokers, rules, losses=losses)
            if after is not p:
                yield partition_changed(topic.topic_id, after)
