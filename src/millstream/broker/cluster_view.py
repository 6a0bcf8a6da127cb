"""The brokers and leaders that clients are shown; the only place that hides nodes that have just disappeared.

The view differs from the metadata in three ways. A broker that was fenced less than a second ago is still listed:
librdkafka drops the state of a broker that is missing from an answer, and if the same answer names a new leader,
librdkafka forgets that too. A leader whose process seems to have ended, though it is not fenced yet, is not named: a
client that is sent to it again does not ask for another leader for a second or two. And an answer waits a moment when a
leader has just disappeared, because the controller usually elects another within a tenth of a second.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from millstream.cluster.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from millstream.cluster.metadata.machine import Records

if TYPE_CHECKING:
    from millstream.broker.partitions.registry import Partitions
    from millstream.cluster.metadata.service import MetadataService

_LISTED_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 0.5
_LOOK_SECONDS = 0.01

LedBy = Callable[[MetadataImage, frozenset[int]], bool]
"""Whether one of these brokers leads a partition that the request asks for."""


class _Waiting(msgspec.Struct):
    led_by: LedBy
    answer: Callable[[], None]
    image: MetadataImage | None = None
    """The image by which `led_by` was true."""


class ClusterView:
    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float],
        partitions: "Partitions",
    ) -> None:
        self.node_id = node_id
        self.metadata: MetadataService
        self.has_just_lost: Callable[[int], bool] | None = None
        """Whether the connection to a broker was just lost; None where this node is alone."""
        self._loop = loop
        self._monotonic = monotonic
        self._partitions = partitions
        self._fenced_since: dict[int, float] = {}
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.Handle | None = None
        self._gone_since: dict[tuple[int, int], float] = {}
        """When a broker's loss was noticed, by the broker's id and epoch."""

    def follow(self, metadata: "MetadataService") -> None:
        self.metadata = metadata
        metadata.subscribe(self.metadata_changed)

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.metadata.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    # -- brokers

    def metadata_changed(self, old: MetadataImage, new: MetadataImage, _records: Records) -> None:
        if old.brokers is new.brokers:
            return
        now = self._monotonic()
        for broker_id, broker in new.brokers.items():
            if not broker.is_fenced:
                self._fenced_since.pop(broker_id, None)
            elif old.is_live(broker_id):
                self._fenced_since[broker_id] = now

    def listed(self, image: MetadataImage) -> list[BrokerImage]:
        """The live brokers, and those fenced less than a second ago."""
        if not self._fenced_since:
            return image.live_brokers
        oldest = self._monotonic() - _LISTED_SECONDS
        self._fenced_since = {each: since for each, since in self._fenced_since.items() if since > oldest}
        return [
            broker
            for _, broker in sorted(image.brokers.items())
            if not broker.is_fenced or broker.broker_id in self._fenced_since
        ]

    def live(self, image: MetadataImage) -> frozenset[int]:
        """The brokers that clients may be sent to."""
        return frozenset(each.broker_id for each in image.live_brokers if not self._seems_gone(each))

    def _seems_gone(self, broker: BrokerImage) -> bool:
        """Whether the broker's process has ended or may have ended, though it is not fenced yet."""
        if self.has_just_lost is None:
            return False
        return self.metadata.is_gone(broker) or self.has_just_lost(broker.broker_id)

    # -- leaders

    def leader(self, topic: str, partition: PartitionImage, live: frozenset[int]) -> int:
        """The partition's leader that clients are shown; NO_LEADER where there is none."""
        leader = partition.leader
        if leader not in live:
            return NO_LEADER
        if leader == self.node_id:
            if self._partitions.is_cut_off and len(partition.replicas) > 1:
                return NO_LEADER
            served = self._partitions.get(topic, partition.index)
            if served is not None and served.log.offline is not None:
                return NO_LEADER
        return leader

    def may_coordinate(self, broker_id: int) -> bool:
        """Whether clients may be sent to the broker as a coordinator."""
        if broker_id == self.node_id and self._partitions.is_cut_off:
            return False
        return self.metadata.image.is_live(broker_id)

    @property
    def is_cut_off(self) -> bool:
        """Whether other nodes may have taken over from this node."""
        return self._partitions.is_cut_off

    # -- waiting for a new leader

    def when_decided(self, led_by: LedBy, answer: Callable[[], None]) -> None:
        """Call `answer` once no broker that disappeared in the last half second leads what is asked for."""
        self._waiting.append(_Waiting(led_by, answer))
        if self._timer is None:
            # Not at once: this turn of the loop may still bring the news that a node has disappeared.
            self._timer = self._loop.call_soon(self._look)

    def _look(self) -> None:
        image = self.metadata.image
        gone = self._just_gone(image)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if self._must_wait(each, image, gone):
                self._waiting.append(each)
            else:
                self._loop.call_soon(each.answer)
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look) if self._waiting else None

    def _just_gone(self, image: MetadataImage) -> frozenset[int]:
        """Live brokers that seem gone, each for half a second only: without a controller no other leader is elected."""
        now = self._loop.time()
        gone = [(each.broker_id, each.epoch) for each in image.live_brokers if self._seems_gone(each)]
        self._gone_since = {each: self._gone_since.get(each, now) for each in gone}
        return frozenset(
            broker_id
            for (broker_id, _), since in self._gone_since.items()
            if now - since < _LONGEST_WAIT_SECONDS
        )

    @staticmethod
    def _must_wait(waiting: _Waiting, image: MetadataImage, gone: frozenset[int]) -> bool:
        if not gone:
            return False
        if waiting.image is not image:
            waiting.image = image
            return waiting.led_by(image, gone)
        return True
