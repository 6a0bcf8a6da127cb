"""Metadata, versions 0 to 13: brokers, topics and their partitions; and ApiVersions, versions 0 to 4.

Topics that do not exist are created where that is allowed. Not done: access rules (all operations are reported as
allowed).
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from millstream.broker.api.call import LATER, Call, Encoded, Occupied, ReplySlot
from millstream.broker.cluster_view import ClusterView
from millstream.broker.machine import Tasks
from millstream.broker.server.listener import host_for
from millstream.broker.server.long_work import SLICE_ELEMENTS, LongWork
from millstream.broker.server.memory import MemoryBudget
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.names import invalid_name_reason, is_internal
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.topics import CreateTopics, NewTopic, in_slices
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.metadata import (
    BrokerAddress,
    ClusterMetadata,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
    WantedTopic,
    encode_metadata_end,
    encode_metadata_head,
    encode_metadata_topics,
)
from millstream.protocol.wire import NULL_UUID

# Partitions described in one turn, over all topics; a topic costs as much as a few partitions.
_MANY_PARTITIONS = 2_000
_TOPIC_COST = 10
_MANY_TOPICS = 2 * SLICE_ELEMENTS
_CREATED_AT_ONCE = 250

Refused = dict[str, ErrorCode]
Answer = tuple[MetadataRequest, ClusterMetadata, list[TopicMetadata]]


class Metadata:
    def __init__(
        self,
        metadata: MetadataService,
        view: ClusterView,
        long_work: LongWork,
        memory: MemoryBudget,
        tasks: Tasks,
        rack: str | None,
        auto_create: Defaults | None,
    ) -> None:
        """`auto_create` has the defaults of topics that are created on request; None where that is off."""
        self._metadata = metadata
        self._view = view
        self._long_work = long_work
        self._memory = memory
        self._tasks = tasks
        self._rack = rack
        self._auto_create = auto_create

    def handle(self, wanted: MetadataRequest, call: Call) -> Any:
        if wanted.topics is not None and len(wanted.topics) > 1:
            # However often a topic is named, it is described once.
            wanted = wanted._replace(topics=list(dict.fromkeys(wanted.topics)))
        if wanted.topics is not None and len(wanted.topics) > _MANY_TOPICS:
            return self._answer_many(wanted, call)
        missing = self._creatable(wanted, wanted.topics or [])
        if missing:
            return self._create_then_answer(wanted, call, missing)
        if self._view.has_just_lost is None:
            return self._answer(wanted, call, {})
        reply = call.reply_later()
        self._view.when_decided(
            lambda image, brokers: _is_led_by(image, wanted, brokers),
            lambda: self._answer_decided(wanted, call, reply),
        )
        return LATER

    def _answer_decided(self, wanted: MetadataRequest, call: Call, reply: ReplySlot) -> None:
        if _is_long(self._metadata.image, wanted):
            work = self._finish_in_slices(wanted, call, reply, call.occupy(self._memory))
            self._tasks.spawn(work, "large metadata")
            return
        with call.occupy(self._memory, is_in_order=False):
            reply.answer(self._described(wanted, call, {}))

    async def _finish_in_slices(
        self, wanted: MetadataRequest, call: Call, reply: ReplySlot, occupied: Occupied
    ) -> None:
        with occupied:
            reply.answer(await self._in_slices(wanted, call, {}))

    def _answer(self, wanted: MetadataRequest, call: Call, refused: Refused) -> Any:
        if _is_long(self._metadata.image, wanted):
            return self._in_slices(wanted, call, refused)
        return self._described(wanted, call, refused)

    async def _answer_many(self, wanted: MetadataRequest, call: Call) -> Any:
        """For many topics, where even the search for missing ones takes long."""
        missing: dict[str, None] = {}
        async for some in self._long_work.slices(wanted.topics or []):
            missing |= dict.fromkeys(self._creatable(wanted, some))
        if missing:
            return await self._create_then_answer(wanted, call, list(missing))
        return await self._in_slices(wanted, call, {})

    # -- creating

    def _creatable(self, wanted: MetadataRequest, some: list[WantedTopic]) -> list[str]:
        if not (wanted.topics and wanted.allow_auto_topic_creation and self._auto_create is not None):
            return []
        if self._view.is_cut_off:
            # Creating could only wait for a controller, and the client will soon be sent to another node.
            return []
        topics = self._metadata.image.topics
        names = dict.fromkeys(topic.name for topic in some if topic.name is not None)
        return [name for name in names if name not in topics and invalid_name_reason(name) is None]

    async def _create_then_answer(self, wanted: MetadataRequest, call: Call, missing: list[str]) -> Any:
        refused: Refused = {}
        assert self._auto_create is not None
        command = CreateTopics(tuple(NewTopic(name) for name in missing), defaults=self._auto_create)
        for some in in_slices(command, _CREATED_AT_ONCE):
            try:
                for outcome in await self._metadata.submit(some):
                    if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        refused[outcome.name] = outcome.error.code
            except KafkaError as error:
                refused |= dict.fromkeys((topic.name for topic in some.topics), error.code)
        if _is_long(self._metadata.image, wanted):
            return await self._in_slices(wanted, call, refused)
        return self._described(wanted, call, refused)

    # -- describing

    def _described(self, wanted: MetadataRequest, call: Call, refused: Refused) -> Answer:
        image = self._metadata.image
        live = self._view.live(image)
        topics = [self._topic(call, image, each, refused, live) for each in _named(image, wanted)]
        return wanted, self._cluster(call, image), topics

    async def _in_slices(self, wanted: MetadataRequest, call: Call, refused: Refused) -> Encoded:
        """Encodes the answer in slices, all from one image."""
        image, version = self._metadata.image, call.version
        live = self._view.live(image)
        named = _named(image, wanted)
        parts = [encode_metadata_head(version, self._cluster(call, image), len(named), call.throttle_ms)]
        left = _MANY_PARTITIONS
        topics: list[TopicMetadata] = []
        for each in named:
            if left <= 0:
                parts.append(await self._encoded(version, wanted, topics))
                topics, left = [], _MANY_PARTITIONS
            topic = _topic_of(image, each)
            if topic is not None and len(topic.partitions) > _MANY_PARTITIONS:
                topics.append(self._shown(call, topic, await self._describe_in_slices(topic, live)))
            else:
                topics.append(self._topic(call, image, each, refused, live))
            left -= _TOPIC_COST + len(topics[-1].partitions)
        parts.append(await self._encoded(version, wanted, topics))
        parts.append(encode_metadata_end(version, wanted))
        return Encoded(parts)

    async def _encoded(self, version: int, wanted: MetadataRequest, topics: list[TopicMetadata]) -> bytes:
        if sum(len(each.partitions) for each in topics) > 2 * _MANY_PARTITIONS:
            return await self._long_work.apart(lambda: encode_metadata_topics(version, wanted, topics))
        await self._long_work.pause()
        return encode_metadata_topics(version, wanted, topics)

    async def _describe_in_slices(self, topic: TopicImage, live: frozenset[int]) -> TopicMetadata:
        partitions: list[PartitionMetadata] = []
        async for some in self._long_work.slices(list(topic.partitions), _MANY_PARTITIONS):
            partitions += self._partitions(topic, some, live)
        return _found(topic, partitions)

    def _cluster(self, call: Call, image: MetadataImage) -> ClusterMetadata:
        shown = call.only_node
        if shown is not None:
            return ClusterMetadata(image.cluster_id, shown.node_id, [BrokerAddress(*shown, self._rack)])
        brokers = [
            BrokerAddress(
                each.broker_id, host_for(each.endpoints[0], call), each.endpoints[0].port, each.rack
            )
            for each in self._view.listed(image)
        ]
        return ClusterMetadata(image.cluster_id, self._metadata.controller_id, brokers)

    def _topic(
        self, call: Call, image: MetadataImage, wanted: WantedTopic, refused: Refused, live: frozenset[int]
    ) -> TopicMetadata:
        topic = _topic_of(image, wanted)
        if topic is None:
            return _unknown(wanted, refused)
        return self._shown(call, topic, _found(topic, self._partitions(topic, topic.partitions, live)))

    def _shown(self, call: Call, topic: TopicImage, found: TopicMetadata) -> TopicMetadata:
        # A node that is cut off cannot forward requests: clients are told the real leaders.
        leader = None if self._view.is_cut_off else call.shown_leader(topic)
        return found if leader is None else _led_by(leader, found)

    def _partitions(
        self, topic: TopicImage, some: Iterable[PartitionImage], live: frozenset[int]
    ) -> list[PartitionMetadata]:
        partitions = []
        for partition in some:
            leader = self._view.leader(topic.name, partition, live)
            error = ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE
            replicas = partition.replicas
            offline = (
                () if live.issuperset(replicas) else tuple(each for each in replicas if each not in live)
            )
            partitions.append(
                PartitionMetadata(
                    error,
                    partition.index,
                    leader,
                    partition.leader_epoch,
                    replicas,
                    partition.isr,
                    replicas if error is not ErrorCode.NONE and not offline else offline,
                )
            )
        return partitions


def _found(topic: TopicImage, partitions: list[PartitionMetadata]) -> TopicMetadata:
    return TopicMetadata(
        ErrorCode.NONE, topic.name, topic.topic_id.bytes, is_internal(topic.name), partitions
    )


def _named(image: MetadataImage, wanted: MetadataRequest) -> list[WantedTopic]:
    if wanted.topics is not None:
        return wanted.topics
    return [WantedTopic(name, NULL_UUID) for name in image.topics]


def _topic_of(image: MetadataImage, wanted: WantedTopic) -> TopicImage | None:
    if wanted.name is None or wanted.topic_id != NULL_UUID:
        return image.topic_by_id(UUID(bytes=wanted.topic_id))
    return image.topic(wanted.name)


def _unknown(wanted: WantedTopic, refused: Refused) -> TopicMetadata:
    if wanted.name is None or wanted.topic_id != NULL_UUID:
        return TopicMetadata(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id, False, [])
    error = refused.get(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if invalid_name_reason(wanted.name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return TopicMetadata(error, wanted.name, NULL_UUID, False, [])


def _led_by(node_id: int, topic: TopicMetadata) -> TopicMetadata:
    """For clients that are shown only this node: it appears as the leader of every partition that has one."""
    return topic._replace(
        partitions=[
            each if each.leader == NO_LEADER else each._replace(leader=node_id) for each in topic.partitions
        ]
    )


def _is_led_by(image: MetadataImage, wanted: MetadataRequest, brokers: frozenset[int]) -> bool:
    """Whether one of the brokers leads a requested partition."""
    if wanted.topics is None:
        topics = list(image.topics.values())
    else:
        found = [_topic_of(image, topic) for topic in wanted.topics]
        topics = [topic for topic in found if topic is not None]
    return any(partition.leader in brokers for topic in topics for partition in topic.partitions)


def _is_long(image: MetadataImage, wanted: MetadataRequest) -> bool:
    if wanted.topics is not None and len(wanted.topics) > SLICE_ELEMENTS:
        return True
    named = image.topics.values() if wanted.topics is None else (_topic_of(image, t) for t in wanted.topics)
    count = 0
    for topic in named:
        count += 1 + (0 if topic is None else len(topic.partitions))
        if count > _MANY_PARTITIONS:
            return True
    return False


def api_versions(_request: None, _call: Call) -> ErrorCode:
    """A client's first request. The codec knows versions and features."""
    return ErrorCode.NONE
