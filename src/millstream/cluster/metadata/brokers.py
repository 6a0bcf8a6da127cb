"""Brokers: registration, signs of life and fencing, and what a restart means for the partitions they lead."""

from dataclasses import dataclass
from uuid import UUID

from millstream.cluster.metadata.controller import Decision, NewId
from millstream.cluster.metadata.ids import id_text
from millstream.cluster.metadata.image import BrokerImage, MetadataImage
from millstream.cluster.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    ClusterCreated,
    Endpoint,
    MetadataRecord,
    PartitionChanged,
)
from millstream.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """Answers the broker's new epoch. The first registration of all creates the cluster.

    A broker of several registers fenced, and is let in by its first heartbeat as one that serves.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    is_fenced: bool = False
    # Of the marker that the last clean stop left in the data directory; -1 where there is none.
    previous_epoch: int = -1
    directory: UUID | None = None

    def decide(self, image: MetadataImage, new_id: NewId, /) -> Decision[int]:
        records: list[MetadataRecord] = []
        if not image.cluster_id:
            records.append(ClusterCreated(id_text(new_id())))
        epoch = image.last_broker_epoch + 1
        records.append(
            BrokerRegistered(
                self.broker_id,
                epoch,
                new_id(),
                self.endpoints,
                self.rack,
                self.is_fenced,
                directory=self.directory,
            )
        )
        return Decision(tuple(records), epoch)


@dataclass(frozen=True, slots=True)
class BrokerStanding:
    """What the controller holds of a broker."""

    is_fenced: bool
    may_stop: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A broker's sign of life; it is let in when it wants to serve, and fenced when it wants to stop."""

    broker_id: int
    epoch: int
    wants_to_stop: bool = False

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[BrokerStanding]:
        broker = registered(image, self.broker_id, self.epoch)
        standing = BrokerStanding(self.wants_to_stop, self.wants_to_stop)
        if broker.is_fenced == self.wants_to_stop:
            return Decision((), standing)
        return Decision((BrokerChanged(self.broker_id, self.epoch, self.wants_to_stop),), standing)


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """For a broker that was silent for too long; answers whether that is news."""

    broker_id: int
    epoch: int

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[bool]:
        broker = image.brokers.get(self.broker_id)
        if broker is None or broker.epoch != self.epoch or broker.is_fenced:
            return Decision((), False)
        return Decision((BrokerChanged(self.broker_id, self.epoch, True),), True)


def registered(image: MetadataImage, broker_id: int, epoch: int) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} has registered again since: its epoch is {broker.epoch}, not {epoch}",
        )
    return broker


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
