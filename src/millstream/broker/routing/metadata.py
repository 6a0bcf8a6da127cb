"""The cluster's metadata as doors see it on a node, and how a process outside the cluster follows it."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from millstream.broker.cluster_view import ClusterView as ToldView
from millstream.broker.routing.calls import encode
from millstream.broker.routing.targets import leader_of
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.image import NO_LEADER, BrokerImage, MetadataImage
from millstream.cluster.metadata.machine import Records
from millstream.cluster.metadata.records import encode_records
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.topics import CreatedTopic, CreateTopics, NewTopic
from millstream.coordinator.definition import partition_for
from millstream.doors.access import Authoriser, Operation, Permission, Resource
from millstream.doors.caller import NODE, Caller
from millstream.doors.cluster import CoordinatorKind, Metadata
from millstream.doors.partitions import Place
from millstream.protocol.errors import ErrorCode, KafkaError

Result = TypeVar("Result")
Changed = Callable[[MetadataImage, MetadataImage], None]

# Images remembered for followers; a follower further behind gets the whole newest image.
_REMEMBERED = 100


class Watchers:
    """Callbacks for new images; called in the order they were added, so that a simulated run can be repeated."""

    def __init__(self) -> None:
        self._watching: dict[int, Changed] = {}
        self._numbers = count()

    def add(self, changed: Changed) -> Callable[[], None]:
        number = next(self._numbers)
        self._watching[number] = changed
        return lambda: self._watching.pop(number, None) and None

    def tell(self, old: MetadataImage, new: MetadataImage) -> None:
        for changed in list(self._watching.values()):
            changed(old, new)


class NodeMetadata:
    def __init__(self, service: MetadataService, defaults: Defaults, authoriser: Authoriser) -> None:
        self._service = service
        self._defaults = defaults
        self._authoriser = authoriser
        self._watchers = Watchers()
        service.subscribe(self._changed)

    @property
    def image(self) -> MetadataImage:
        return self._service.image

    @property
    def incarnation(self) -> str:
        """Changes with each start of this node."""
        return f"{self._service.broker_epoch}"

    @property
    def index(self) -> int:
        """The index in the quorum's log that the image has reached."""
        return self._service.quorum.applied_index

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._watchers.add(changed)

    async def create_topics(self, caller: Caller, topics: Sequence[NewTopic]) -> tuple[CreatedTopic, ...]:
        allowed = [topic for topic in topics if self._may_create(caller, topic.name)]
        command = CreateTopics(
            tuple(allowed), defaults=self._defaults, allow_internal=caller.principal == NODE.principal
        )
        created = {each.name: each for each in await self._service.submit(command)} if allowed else {}
        refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed to create the topic")
        return tuple(created.get(each.name) or CreatedTopic(each.name, error=refused) for each in topics)

    async def submit(self, command: Command[Result]) -> Result:
        return await self._service.submit(command)

    def _may_create(self, caller: Caller, topic: str) -> bool:
        return any(
            self._authoriser.allows(caller, needed)
            for needed in (
                Permission(Operation.CREATE, Resource.CLUSTER),
                Permission(Operation.CREATE, Resource.TOPIC, topic),
            )
        )

    def _changed(self, old: MetadataImage, new: MetadataImage, _records: Records) -> None:
        self._watchers.tell(old, new)


class MetadataFollowers:
    """Sends this node's image to processes outside the cluster: first whole, then changes."""

    def __init__(self, metadata: NodeMetadata) -> None:
        self._metadata = metadata
        self._numbers = count()
        self._sent: OrderedDict[str, MetadataImage] = OrderedDict()
        self._newest = ""

    async def next(self, sent: str, max_wait_s: float) -> bytes:
        """The name of the newest image, and the records that lead to it from the image named `sent`.

        If that image is unknown, the records are the whole newest image, and the name begins with "!". After an "@" the
        name has the image's index, for followers that come from another node.
        """
        sent = sent.partition("@")[0]
        if self._sent.get(sent) is self._metadata.image:
            await self._another(max_wait_s)
        image = self._metadata.image
        base = self._sent.get(sent)
        name = f"{self._name_of(image)}@{self._metadata.index}"
        records = tuple(difference(base or MetadataImage(), image))
        return encode((name if base is not None else f"!{name}", encode_records(records)))

    def _name_of(self, image: MetadataImage) -> str:
        if self._sent.get(self._newest) is not image:
            self._newest = f"{self._metadata.incarnation}-{next(self._numbers)}"
            self._sent[self._newest] = image
            if len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)
        return self._newest

    async def _another(self, seconds: float) -> None:
        changed = asyncio.Event()
        stop = self._metadata.watch(lambda _old, _new: changed.set())
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return
        finally:
            stop()


class ImageView:
    """Brokers, leaders and coordinators by the metadata alone, for a process outside the cluster."""

    def __init__(self, node_id: int, metadata: Metadata) -> None:
        self.node_id = node_id
        self._metadata = metadata

    def brokers(self) -> Sequence[BrokerImage]:
        return self._metadata.image.live_brokers

    def leader(self, place: Place) -> int | None:
        return leader_of(self._metadata.image, place.topic, place.partition)

    def coordinator(self, kind: CoordinatorKind, key: str) -> int | None:
        topic = self._metadata.image.topic(kind.value)
        if topic is None:
            return None
        return self.leader(Place(kind.value, partition_for(key, len(topic.partitions))))


class NodeView(ImageView):
    """As this node's clients are shown them: without brokers that have just disappeared."""

    def __init__(self, view: ToldView, metadata: Metadata) -> None:
        super().__init__(view.node_id, metadata)
        self._view = view

    def brokers(self) -> Sequence[BrokerImage]:
        image = self._metadata.image
        live = self._view.live(image)
        return [broker for broker in image.live_brokers if broker.broker_id in live]

    def leader(self, place: Place) -> int | None:
        image = self._metadata.image
        partition = image.partition(place.topic, place.partition)
        if partition is None:
            return None
        leader = self._view.leader(place.topic, partition, self._view.live(image))
        return None if leader == NO_LEADER else leader
