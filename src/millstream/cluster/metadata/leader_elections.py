"""Elections on request: by an operator, by a leader that cannot continue, or by the controller to restore preferred
leaders.
"""

from collections import Counter
from enum import IntEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from millstream.cluster.metadata.brokers import registered
from millstream.cluster.metadata.commands import CHANGED_AT_ONCE, Decision, NewId
from millstream.cluster.metadata.difference import partition_changed
from millstream.cluster.metadata.election import Losses, Seek, next_state, rules_of
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.records import MetadataRecord
from millstream.protocol.errors import ErrorCode, KafkaError


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionOutcome(msgspec.Struct, frozen=True):
    topic: str
    index: int
    error: KafkaError | None = None


class ElectLeaders(msgspec.Struct, frozen=True):
    kind: int
    partitions: tuple[tuple[str, int], ...]

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[tuple[ElectionOutcome, ...]]:
        try:
            kind = ElectionType(self.kind)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown election type {self.kind}; use 0 (preferred) or 1 (unclean).",
            ) from None
        records: list[MetadataRecord] = []
        outcomes: list[ElectionOutcome] = []
        for topic, index in dict.fromkeys(self.partitions):
            error = _elect(image, topic, index, kind, records)
            outcomes.append(ElectionOutcome(topic, index, error))
        return Decision(tuple(records), tuple(outcomes))


class MakeWay(msgspec.Struct, frozen=True):
    """A leader asks to be replaced because it cannot read its own uncommitted records, so no follower can fetch them.

    Answers whether another replica that has everything acknowledged leads now. If there is none, the leader stays, and
    delayed earlier attempts of this command are made to fail.
    """

    broker_id: int
    broker_epoch: int
    topic_id: UUID
    index: int
    leader_epoch: int
    # -1 from earlier versions, which do not send it; the command then changes nothing.
    partition_epoch: int = -1

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[bool]:
        registered(image, self.broker_id, self.broker_epoch)
        topic = image.topics_by_id.get(self.topic_id)
        p = image.partition(topic.name, self.index) if topic is not None else None
        if topic is None or p is None:
            return Decision((), False)
        if (p.leader, p.leader_epoch) != (self.broker_id, self.leader_epoch):
            # Perhaps an earlier attempt replaced it.
            return Decision((), True)
        if p.partition_epoch != self.partition_epoch:
            return Decision((), False)
        # Treat the leader as wiped until it is in sync again: an earlier leader may have acknowledged the records that
        # it cannot read.
        me = (self.broker_id,)
        after = next_state(p, image.brokers, rules_of(image, topic), losses=Losses(unclean=me, wiped=me))
        if after.leader not in {*p.isr, *p.elr} - {self.broker_id}:
            refused = replace(p, partition_epoch=p.partition_epoch + 1)
            return Decision((partition_changed(topic.topic_id, refused),), False)
        return Decision((partition_changed(topic.topic_id, after),), True)


class RestorePreferredLeaders(msgspec.Struct, frozen=True):
    """Gives leadership back to preferred leaders; answers how many partitions were moved.

    Only for brokers of whose preferred partitions more than `allowed_percent` are led by others; moves at most `limit`.
    """

    allowed_percent: int = 10
    limit: int = CHANGED_AT_ONCE

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[int]:
        own: Counter[int] = Counter()
        elsewhere: Counter[int] = Counter()
        for topic in image.topics.values():
            for p in topic.partitions:
                own[p.replicas[0]] += 1
                elsewhere[p.replicas[0]] += p.leader != p.replicas[0]
        poor = {broker for broker, n in elsewhere.items() if 100 * n > self.allowed_percent * own[broker]}
        records: list[MetadataRecord] = []
        if poor:
            for topic in image.topics.values():
                for p in topic.partitions:
                    first = p.replicas[0]
                    if p.leader != first and first in poor and first in p.isr and len(records) < self.limit:
                        _move(image, topic, p, Seek.PREFERRED, records)
        return Decision(tuple(records), len(records))


def _elect(
    image: MetadataImage, name: str, index: int, kind: ElectionType, records: list[MetadataRecord]
) -> KafkaError | None:
    p = image.partition(name, index)
    if p is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{index}.")
    topic = image.topics[name]
    if kind is ElectionType.PREFERRED:
        if p.leader == p.replicas[0]:
            return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads already.")
        after = _move(image, topic, p, Seek.PREFERRED, records)
        if after.leader != p.replicas[0]:
            return KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"The preferred replica {p.replicas[0]} is not alive and in sync.",
            )
        return None
    if p.leader != NO_LEADER:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"The partition is led by {p.leader}.")
    if _move(image, topic, p, Seek.UNCLEAN, records).leader == NO_LEADER:
        return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of the replicas is alive.")
    return None


def _move(
    image: MetadataImage, topic: TopicImage, p: PartitionImage, seek: Seek, records: list[MetadataRecord]
) -> PartitionImage:
    after = next_state(p, image.brokers, rules_of(image, topic), seek=seek)
    if after is not p:
        records.append(partition_changed(topic.topic_id, after))
    return after
