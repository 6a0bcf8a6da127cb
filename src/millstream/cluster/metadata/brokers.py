"""Brokers: registration, and what a restart means for the partitions they lead."""

from dataclasses import dataclass

from millstream.cluster.metadata.controller import Decision, NewId
from millstream.cluster.metadata.ids import id_text
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import (
    BrokerRegistered,
    ClusterCreated,
    Endpoint,
    MetadataRecord,
    PartitionChanged,
)


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """Answers the broker's new epoch. The first registration of all creates the cluster."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def decide(self, image: MetadataImage, new_id: NewId, /) -> Decision[int]:
        records: list[MetadataRecord] = []
        if not image.cluster_id:
            records.append(ClusterCreated(id_text(new_id())))
        epoch = 1 + max((broker.epoch for broker in image.brokers.values()), default=-1)
        records.append(BrokerRegistered(self.broker_id, epoch, new_id(), self.endpoints, self.rack))
        return Decision(tuple(records), epoch)


@dataclass(frozen=True, slots=True)
class AdvanceLeaderEpochs:
    """A new epoch for every partition the broker leads; answers their number.

    For a broker that comes back without a clean shutdown: records that consumers saw may be gone with the
    page cache, and only a new epoch lets clients notice that an offset now names another record.
    """

    broker_id: int

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[int]:
        records = tuple(
            PartitionChanged(
                topic.topic_id,
                p.index,
                p.replicas,
                p.isr,
                p.leader,
                p.leader_epoch + 1,
                p.partition_epoch + 1,
            )
            for topic in image.topics.values()
            for p in topic.partitions
            if p.leader == self.broker_id
        )
        return Decision(records, len(records))
