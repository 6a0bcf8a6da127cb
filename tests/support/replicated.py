"""A cluster's metadata for tests of elections: brokers that are up, topics with replicas, commands in a row."""

import uuid
from collections.abc import Iterable
from typing import Any, TypeVar

from millstream.cluster.metadata.brokers import BrokerHeartbeat, FenceBroker, RegisterBroker
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.image import MetadataImage, PartitionImage
from millstream.cluster.metadata.in_sync_sets import ChangeInSyncSets, InSyncChange, InSyncResult
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.recovered_replicas import RecoveredReplica, ReportRecovered
from millstream.cluster.metadata.topics import CreateTopics, NewTopic

Result = TypeVar("Result")

ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092),)


class Cluster:
    """`image` is the newest; every command is decided on it and applied at once."""

    def __init__(self, *brokers: int) -> None:
        self.image = MetadataImage()
        for broker in brokers:
            self.start(broker)

    def do(self, command: Command[Result]) -> Result:
        decision = command.decide(self.image, uuid.uuid4)
        self.image = self.image.apply(decision.records)
        return decision.result

    def start(self, broker: int, previous_epoch: int = -1, directory: uuid.UUID | None = None) -> None:
        self.register(broker, previous_epoch, directory)
        self.beat(broker)

    def register(
        self,
        broker: int,
        previous_epoch: int = -1,
        directory: uuid.UUID | None = None,
        min_insync: int = 1,
    ) -> None:
        """As a broker that is starting: it is let in by its first sign of life."""
        self.do(
            RegisterBroker(
                broker,
                ENDPOINTS,
                is_fenced=True,
                previous_epoch=previous_epoch,
                directory=directory,
                min_insync=min_insync,
            )
        )

    def tell(
        self,
        broker: int,
        last_epoch: int,
        end_offset: int,
        *,
        is_whole: bool,
        leader_epoch: int | None = None,
    ) -> None:
        """What the broker has of the topic's partition."""
        seen = self.partition().leader_epoch if leader_epoch is None else leader_epoch
        topic_id = self.image.topics["t"].topic_id
        found = RecoveredReplica(topic_id, 0, seen, last_epoch, end_offset, is_whole)
        self.do(ReportRecovered(broker, self.image.brokers[broker].epoch, (found,)))

    def start_cleanly(self, broker: int) -> None:
        self.start(broker, previous_epoch=self.image.brokers[broker].epoch)

    def beat(self, broker: int, *, wants_to_stop: bool = False) -> None:
        self.do(BrokerHeartbeat(broker, self.image.brokers[broker].epoch, wants_to_stop))

    def fence(self, *brokers: int) -> None:
        for broker in brokers:
            self.do(FenceBroker(broker, self.image.brokers[broker].epoch))

    def create(self, *replicas: int, topic: str = "t", **configs: Any) -> None:
        settings = tuple((key.replace("_", "."), str(value)) for key, value in configs.items())
        (outcome,) = self.do(CreateTopics((NewTopic(topic, assignments=((0, replicas),), configs=settings),)))
        assert outcome.error is None, outcome.error

    def partition(self, topic: str = "t") -> PartitionImage:
        return self.image.topics[topic].partitions[0]

    def set_isr(self, isr: Iterable[int], topic: str = "t", *, may_end_move: bool = True) -> InSyncResult:
        """As the partition's leader asks for it."""
        p, brokers = self.partition(topic), self.image.brokers
        change = InSyncChange(
            self.image.topics[topic].topic_id,
            0,
            p.leader_epoch,
            tuple((broker, brokers[broker].epoch) for broker in isr),
            p.partition_epoch,
            may_end_move,
        )
        (result,) = self.do(ChangeInSyncSets(p.leader, brokers[p.leader].epoch, (change,)))
        return result

    def led(self, topic: str = "t") -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Leader, in-sync set, eligible leaders."""
        p = self.partition(topic)
        return p.leader, p.isr, p.elr
