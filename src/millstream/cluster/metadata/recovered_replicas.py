"""After an unclean stop, brokers report how far their logs reach, and the controller decides who may lead.

A broker reports after recovery, before it is unfenced, and again when such a partition loses its leader.
"""

from uuid import UUID

import msgspec

from millstream.cluster.metadata.brokers import registered
from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.difference import partition_changed
from millstream.cluster.metadata.election import Recovered, next_state, rules_of
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import LastKnownReplica, MetadataRecord


class RecoveredReplica(msgspec.Struct, frozen=True):
    """A local log after recovery. `is_whole`: nothing was cut, and all confirmed records had been synced.

    `leader_epoch` is the partition's epoch when the broker examined its log.
    """

    topic_id: UUID
    index: int
    leader_epoch: int
    last_epoch: int
    end_offset: int
    is_whole: bool


class ReportRecovered(msgspec.Struct, frozen=True):
    """Answers how many partitions changed; those that do not wait for the broker are skipped."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[RecoveredReplica, ...]

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[int]:
        registered(image, self.broker_id, self.broker_epoch)
        records: list[MetadataRecord] = []
        for each in {(each.topic_id, each.index): each for each in self.replicas}.values():
            topic = image.topics_by_id.get(each.topic_id)
            if topic is None or not 0 <= each.index < len(topic.partitions):
                continue
            p = topic.partitions[each.index]
            if not each.is_whole and each.leader_epoch != p.leader_epoch:
                # The report is outdated: a leader was elected since, and the log may have followed it.
                continue
            has = LastKnownReplica(self.broker_id, each.last_epoch, each.end_offset)
            after = next_state(
                p, image.brokers, rules_of(image, topic), recovered=Recovered(has, each.is_whole)
            )
            if after is not p:
                records.append(partition_changed(topic.topic_id, after))
        return Decision(tuple(records), len(records))
