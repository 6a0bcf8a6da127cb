"""Changes of in-sync sets: leaders ask for them, and only the controller makes them."""

from uuid import UUID

import msgspec
from msgspec.structs import replace

from millstream.cluster.metadata.brokers import registered
from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.difference import partition_changed
from millstream.cluster.metadata.election import is_usable, min_insync, next_state, rules_of
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.records import MetadataRecord
from millstream.protocol.errors import ErrorCode

__all__ = ["ChangeInSyncSets", "InSyncChange", "InSyncResult", "min_insync"]


class InSyncChange(msgspec.Struct, frozen=True):
    """The leader's request. `isr` holds pairs of broker id and broker epoch, -1 where the leader does not know it.

    `may_end_move`: all members that a reassignment removes know this leader.
    """

    topic_id: UUID
    index: int
    leader_epoch: int
    isr: tuple[tuple[int, int], ...]
    partition_epoch: int
    may_end_move: bool = True


class InSyncResult(msgspec.Struct, frozen=True):
    """`error` is a Kafka error code; if it is 0, the other fields are the partition's new state."""

    error: int
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


class ChangeInSyncSets(msgspec.Struct, frozen=True):
    """Answers one result for each change, in order. A set that is already in place needs no record."""

    broker_id: int
    broker_epoch: int
    changes: tuple[InSyncChange, ...]

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[tuple[InSyncResult, ...]]:
        registered(image, self.broker_id, self.broker_epoch)
        records: list[MetadataRecord] = []
        results: list[InSyncResult] = []
        seen: set[tuple[UUID, int]] = set()
        for change in self.changes:
            topic = image.topics_by_id.get(change.topic_id)
            if topic is None:
                results.append(InSyncResult(ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            if not 0 <= change.index < len(topic.partitions):
                results.append(InSyncResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            if (change.topic_id, change.index) in seen:
                results.append(InSyncResult(ErrorCode.INVALID_REQUEST))
                continue
            seen.add((change.topic_id, change.index))
            results.append(self._change(image, topic, change, records))
        return Decision(tuple(records), tuple(results))

    def _change(
        self, image: MetadataImage, topic: TopicImage, change: InSyncChange, records: list[MetadataRecord]
    ) -> InSyncResult:
        p = topic.partitions[change.index]
        error = self._refusal(image, p, change)
        if error is ErrorCode.INELIGIBLE_REPLICA:
            # The leader will drop this change, so a delayed earlier attempt must fail too.
            refused = replace(p, partition_epoch=p.partition_epoch + 1)
            records.append(partition_changed(topic.topic_id, refused))
        if error is not ErrorCode.NONE:
            return InSyncResult(error)
        isr = tuple(broker for broker, _ in change.isr)
        if set(isr) == set(p.isr) and not (change.may_end_move and p.removing):
            return _state(p)
        after = next_state(
            p, image.brokers, rules_of(image, topic), isr=isr, may_end_move=change.may_end_move
        )
        if after is not p:
            records.append(partition_changed(topic.topic_id, after))
        if after.leader != self.broker_id or after.leader_epoch != p.leader_epoch:
            # This completes a reassignment: the caller must read the metadata to learn the new leader.
            return InSyncResult(ErrorCode.NEW_LEADER_ELECTED)
        return _state(after)

    def _refusal(self, image: MetadataImage, p: PartitionImage, change: InSyncChange) -> ErrorCode:
        """The order of the checks matters: the caller acts on the first that fails."""
        if change.leader_epoch < p.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if change.leader_epoch > p.leader_epoch:
            # The caller has newer metadata than this node, so this node is no longer the controller.
            return ErrorCode.NOT_CONTROLLER
        if self.broker_id != p.leader:
            return ErrorCode.INVALID_REQUEST
        if change.partition_epoch < p.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if change.partition_epoch > p.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        members = [broker for broker, _ in change.isr]
        if len(set(members)) != len(members) or not set(members) <= set(p.replicas):
            return ErrorCode.INVALID_REQUEST
        if self.broker_id not in members:
            return ErrorCode.INVALID_REQUEST
        for broker, epoch in change.isr:
            if not is_usable(image.brokers, broker):
                return ErrorCode.INELIGIBLE_REPLICA
            if epoch not in (-1, image.brokers[broker].epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE


def _state(p: PartitionImage) -> InSyncResult:
    return InSyncResult(ErrorCode.NONE, p.leader, p.leader_epoch, p.isr, p.partition_epoch)
