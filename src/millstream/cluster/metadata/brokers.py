"""Brokers: registration, signs of life and fencing, and what a restart means for the partitions they lead."""

from uuid import UUID

import msgspec
from msgspec.structs import replace

from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.difference import partition_changed
from millstream.cluster.metadata.election import NO_LOSSES, Losses, is_usable, lowest_min_insync
from millstream.cluster.metadata.image import BrokerImage, MetadataImage
from millstream.cluster.metadata.names import id_text
from millstream.cluster.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterCreated,
    Endpoint,
    MetadataRecord,
)
from millstream.cluster.metadata.replica_changes import after_loss_of, after_new_rules, after_return_of
from millstream.protocol.errors import ErrorCode, KafkaError


class RegisterBroker(msgspec.Struct, frozen=True):
    """Answers the broker's new epoch. The very first registration creates the cluster.

    In a cluster of several, a broker registers fenced and is unfenced by its first heartbeat. It may retry when an
    answer was lost: a process, identified by its `incarnation`, is registered once.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    is_fenced: bool = False
    # From the marker that a clean stop leaves in the data directory; -1 without one.
    previous_epoch: int = -1
    directory: UUID | None = None
    # From the broker's own settings file: its minimum as a leader, where nothing else is set.
    min_insync: int = 1
    incarnation: UUID | None = None
    # From its settings file too: nobody takes over from it sooner, because its leases last by it.
    session_ms: int = 0

    def decide(self, image: MetadataImage, new_id: NewId, /) -> Decision[int]:
        if self.directory in image.retired_directories:
            # It was removed while it was running.
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION,
                f"node {self.broker_id} was removed from the cluster; it may come back with an empty --data",
            )
        was = image.brokers.get(self.broker_id)
        if was is not None and was.incarnation == self.incarnation:
            return Decision((), was.epoch)
        records: list[MetadataRecord] = []
        if not image.cluster_id:
            records.append(ClusterCreated(id_text(new_id())))
        epoch = image.last_broker_epoch + 1
        records.append(
            BrokerRegistered(
                self.broker_id,
                epoch,
                self.incarnation or new_id(),
                self.endpoints,
                self.rack,
                self.is_fenced,
                directory=self.directory,
                min_insync=self.min_insync,
                session_ms=self.session_ms,
            )
        )
        after = image.apply(records)
        if self.is_fenced:
            records += after_loss_of(self.broker_id, after, self._losses(image))
        else:
            records += after_return_of(self.broker_id, after)
        after = image.apply(records)
        if lowest_min_insync(after) < lowest_min_insync(image):
            records += after_new_rules(after, after.topics.values())
        return Decision(tuple(records), epoch)

    def _losses(self, image: MetadataImage) -> Losses:
        """Without the marker of its last epoch, the broker must be assumed to have lost unflushed records."""
        was = image.brokers.get(self.broker_id)
        if was is None or was.epoch == self.previous_epoch:
            return NO_LOSSES
        is_other_disk = None not in (self.directory, was.directory) and self.directory != was.directory
        return Losses((self.broker_id,), (self.broker_id,) if is_other_disk else ())


class BrokerStanding(msgspec.Struct, frozen=True):
    """How the controller sees a broker."""

    is_fenced: bool
    may_stop: bool
    # The committed index at which the controller, after the heartbeat arrived, confirmed its leadership.
    index: int = -1


class BrokerHeartbeat(msgspec.Struct, frozen=True):
    """Keeps a broker's session alive, unfences it when it wants to serve, and moves its leaders when it wants to stop.

    A stop cannot be taken back within this epoch: delayed heartbeats change nothing. A broker that cannot write is
    fenced, so that nobody waits for it. While it is still serving, the answer only announces the fencing: no other
    broker may lead before it has stopped serving.
    """

    broker_id: int
    epoch: int
    wants_to_stop: bool = False
    can_write: bool = True
    is_serving: bool = False
    # Heartbeats may arrive out of order; an older one must not undo a newer one.
    sequence: int = 0

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[BrokerStanding]:
        broker = registered(image, self.broker_id, self.epoch)
        if broker.is_shutting_down:
            return Decision((), BrokerStanding(is_fenced=True, may_stop=True))
        standing = BrokerStanding(self.wants_to_stop, self.wants_to_stop)
        if self.wants_to_stop:
            leaving = BrokerChanged(self.broker_id, self.epoch, is_fenced=True, is_shutting_down=True)
            return Decision(_with_losses(image, leaving), standing)
        if not self.can_write:
            return self._take_out(image, broker)
        if not broker.is_fenced:
            return Decision((), standing)
        back = BrokerChanged(self.broker_id, self.epoch, is_fenced=False)
        return Decision((back, *after_return_of(self.broker_id, image.apply((back,)))), standing)

    def _take_out(self, image: MetadataImage, broker: BrokerImage) -> Decision[BrokerStanding]:
        is_last = [each.broker_id for each in image.live_brokers] == [self.broker_id]
        standing = BrokerStanding(is_fenced=not is_last, may_stop=False)
        if broker.is_fenced or is_last or self.is_serving:
            # The last broker stays: its records can still be read.
            return Decision((), standing)
        fenced = BrokerChanged(self.broker_id, self.epoch, is_fenced=True)
        return Decision(_with_losses(image, fenced), standing)


class FenceBroker(msgspec.Struct, frozen=True):
    """Fences a broker that was silent for too long; answers whether this changed anything."""

    broker_id: int
    epoch: int

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[bool]:
        broker = image.brokers.get(self.broker_id)
        if broker is None or broker.epoch != self.epoch or broker.is_fenced:
            return Decision((), False)
        return Decision(_with_losses(image, BrokerChanged(self.broker_id, self.epoch, is_fenced=True)), True)


class UnregisterBroker(msgspec.Struct, frozen=True):
    """Removes a broker permanently; if it is still running, it ends itself.

    Refused while the broker is alive and has the only complete replica of a partition: the partition may have been
    created after the operator looked.
    """

    broker_id: int

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[bool]:
        broker = image.brokers.get(self.broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {self.broker_id} is not registered")
        if is_usable(image.brokers, self.broker_id):
            self._check_others_have_all(image)
        gone = BrokerUnregistered(self.broker_id, broker.epoch)
        never = Losses((self.broker_id,), (self.broker_id,))
        return Decision((gone, *after_loss_of(self.broker_id, image.apply((gone,)), never)), True)

    def _check_others_have_all(self, image: MetadataImage) -> None:
        for topic in image.topics.values():
            for p in topic.partitions:
                if p.isr == (self.broker_id,) and not p.elr:
                    raise KafkaError(
                        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                        f"broker {self.broker_id} is alive, and it alone has everything of {topic.name}-{p.index};"
                        " move that to others, or stop the broker first if it is to be lost",
                    )


def _with_losses(image: MetadataImage, change: BrokerChanged) -> tuple[MetadataRecord, ...]:
    return (change, *after_loss_of(change.broker_id, image.apply((change,))))


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


class AdvanceLeaderEpochs(msgspec.Struct, frozen=True):
    """A new epoch for every partition the broker leads; answers their number.

    For a broker that returns after an unclean stop: records that consumers saw may be lost with the page cache, and
    only a new epoch lets clients notice that an offset now holds another record.
    """

    broker_id: int

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[int]:
        records = tuple(
            partition_changed(
                topic.topic_id,
                replace(p, leader_epoch=p.leader_epoch + 1, partition_epoch=p.partition_epoch + 1),
            )
            for topic in image.topics.values()
            for p in topic.partitions
            if p.leader == self.broker_id
        )
        return Decision(records, len(records))
