"""Metadata: brokers, topics and their partitions; topics that do not exist are created where that is allowed."""

from typing import TYPE_CHECKING
from uuid import UUID

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.broker.api.large_requests import decode_apart
from millstream.broker.handlers.admin import defaults_of
from millstream.broker.server.addresses import ShownNode, host_for
from millstream.broker.server.long_work import SLICE_ELEMENTS
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage, TopicImage
from millstream.cluster.metadata.names import invalid_name_reason, is_internal
from millstream.cluster.metadata.topics import CreateTopics, NewTopic, in_slices
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.metadata import (
    BrokerAddress,
    ClusterMetadata,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
    WantedTopic,
    decode_metadata,
    encode_metadata_end,
    encode_metadata_head,
    encode_metadata_refusal,
    encode_metadata_reply,
    encode_metadata_topics,
)
from millstream.protocol.wire import NULL_UUID

if TYPE_CHECKING:
    from millstream.broker.node import Broker

_LARGE_BYTES = 16 * 1024
# Partitions that are described in one go, of all topics together; a topic costs as much as a few of them.
_MANY_PARTITIONS = 2_000
_TOPIC_COST = 10
_MANY_TOPICS = 2 * SLICE_ELEMENTS
_CREATED_AT_ONCE = 250
_ERRORS_FROM = 13


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    if len(request) > _LARGE_BYTES:
        version = context.version
        decode_apart(
            broker,
            context,
            request,
            lambda copied: decode_metadata(copied, position, version),
            lambda wanted: _serve(broker, context, wanted),
        )
        return
    _serve(broker, context, decode_metadata(request, position, context.version))


def refuse(context: RequestContext, code: ErrorCode) -> bool:
    """Whether the version has a place for an error of the whole request."""
    if context.version < _ERRORS_FROM:
        return False
    context.reply([encode_metadata_refusal(context.version, code)])
    return True


def _serve(broker: "Broker", context: RequestContext, wanted: MetadataRequest) -> None:
    if wanted.topics is not None and len(wanted.topics) > _MANY_TOPICS:
        context.connection.block()
        broker.spawn(_serve_many(broker, context, context.reply_later(), wanted), "large metadata")
        return
    missing = _creatable(broker, wanted, wanted.topics or [])
    if not missing:
        if broker.membership is not None:
            _answer_when_settled(broker, context, wanted)
        elif _is_long(broker.metadata.image, wanted):
            _begin_slices(broker, context, context.reply_later(), wanted)
        else:
            context.reply([_answer(broker, context, wanted, {})])
        return
    context.connection.block()
    broker.spawn(_create_then_answer(broker, context, context.reply_later(), wanted, missing), "auto-create")


def _answer_when_settled(broker: "Broker", context: RequestContext, wanted: MetadataRequest) -> None:
    reply = context.reply_later()

    def answer() -> None:
        if _is_long(broker.metadata.image, wanted):
            _begin_slices(broker, context, reply, wanted)
            return
        try:
            reply.complete([_answer(broker, context, wanted, {})])
        except BaseException:
            context.connection.close()
            raise

    broker.settling.answer(lambda image, brokers: _is_led_by(image, wanted, brokers), answer)


def _is_led_by(image: MetadataImage, wanted: MetadataRequest, brokers: frozenset[int]) -> bool:
    """Whether one of the brokers leads a partition of what is asked for."""
    if wanted.topics is None:
        topics = list(image.topics.values())
    else:
        found = [_topic_of(image, topic) for topic in wanted.topics]
        topics = [topic for topic in found if topic is not None]
    return any(partition.leader in brokers for topic in topics for partition in topic.partitions)


def _topic_of(image: MetadataImage, wanted: WantedTopic) -> TopicImage | None:
    if wanted.name is None or wanted.topic_id != NULL_UUID:
        return image.topic_by_id(UUID(bytes=wanted.topic_id))
    return image.topic(wanted.name)


async def _serve_many(
    broker: "Broker", context: RequestContext, reply: LaterReply, wanted: MetadataRequest
) -> None:
    """As `_serve`, where even looking for topics that do not exist takes long."""
    try:
        missing: dict[str, None] = {}
        async for some in broker.long_work.slices(wanted.topics or []):
            missing |= dict.fromkeys(_creatable(broker, wanted, some))
    except BaseException:
        context.connection.close()
        context.connection.unblock()
        raise
    if missing:
        await _create_then_answer(broker, context, reply, wanted, list(missing))
    else:
        await _answer_in_slices(broker, context, reply, wanted, {})


async def _create_then_answer(
    broker: "Broker", context: RequestContext, reply: LaterReply, wanted: MetadataRequest, missing: list[str]
) -> None:
    refused: dict[str, ErrorCode] = {}
    try:
        command = CreateTopics(tuple(NewTopic(name) for name in missing), defaults=defaults_of(broker))
        for some in in_slices(command, _CREATED_AT_ONCE):
            try:
                for outcome in await broker.metadata.submit(some):
                    if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        refused[outcome.name] = outcome.error.code
            except KafkaError as error:
                refused |= dict.fromkeys((topic.name for topic in some.topics), error.code)
        if _is_long(broker.metadata.image, wanted):
            context.connection.block()
            await _answer_in_slices(broker, context, reply, wanted, refused)
            return
        reply.complete([_answer(broker, context, wanted, refused)])
    except BaseException:
        # There will be no reply: without this the client would wait for it for ever.
        context.connection.close()
        raise
    finally:
        context.connection.unblock()


def _creatable(broker: "Broker", wanted: MetadataRequest, some: list[WantedTopic]) -> list[str]:
    if not (wanted.topics and wanted.allow_auto_topic_creation and broker.auto_create_topics):
        return []
    if broker.partitions.is_cut_off:
        # It could only wait for a controller; the client is about to be sent to another node.
        return []
    topics = broker.metadata.image.topics
    names = dict.fromkeys(topic.name for topic in some if topic.name is not None)
    return [name for name in names if name not in topics and invalid_name_reason(name) is None]


def _answer(
    broker: "Broker", context: RequestContext, wanted: MetadataRequest, refused: dict[str, ErrorCode]
) -> bytes:
    image = broker.metadata.image
    live = _live(broker, image)
    topics = [_topic(broker, context, image, each, refused, live) for each in _named(image, wanted)]
    return encode_metadata_reply(context.version, wanted, _cluster(broker, context, image), topics)


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


def _begin_slices(
    broker: "Broker", context: RequestContext, reply: LaterReply, wanted: MetadataRequest
) -> None:
    context.connection.block()
    broker.spawn(_answer_in_slices(broker, context, reply, wanted, {}), "large metadata")


async def _answer_in_slices(
    broker: "Broker",
    context: RequestContext,
    reply: LaterReply,
    wanted: MetadataRequest,
    refused: dict[str, ErrorCode],
) -> None:
    """Of one image from the first topic to the last; the connection is blocked meanwhile."""
    try:
        image = broker.metadata.image
        live = _live(broker, image)
        named = _named(image, wanted)
        parts = [encode_metadata_head(context.version, _cluster(broker, context, image), len(named))]
        left = 0
        topics: list[TopicMetadata] = []
        for each in named:
            if left <= 0:
                parts.append(encode_metadata_topics(context.version, wanted, topics))
                topics, left = [], _MANY_PARTITIONS
                await broker.long_work.pause()
            topics.append(_topic(broker, context, image, each, refused, live))
            left -= _TOPIC_COST + len(topics[-1].partitions)
        parts.append(encode_metadata_topics(context.version, wanted, topics))
        parts.append(encode_metadata_end(context.version, wanted))
        reply.complete(list(parts))
    except BaseException:
        # There will be no reply: without this the client would wait for it for ever.
        context.connection.close()
        raise
    finally:
        context.connection.unblock()


def _live(broker: "Broker", image: MetadataImage) -> frozenset[int]:
    """A client that is sent to a dead leader again does not ask for another one for a second or two."""
    return frozenset(each.broker_id for each in image.live_brokers if not broker.seems_gone(each))


def _named(image: MetadataImage, wanted: MetadataRequest) -> list[WantedTopic]:
    if wanted.topics is not None:
        return wanted.topics
    return [WantedTopic(name, NULL_UUID) for name in image.topics]


def _cluster(broker: "Broker", context: RequestContext, image: MetadataImage) -> ClusterMetadata:
    shown = context.only_node
    if shown is not None:
        address = BrokerAddress(*shown, broker.settings.broker.rack)
        return ClusterMetadata(image.cluster_id, shown.node_id, [address])
    brokers = [
        BrokerAddress(each.broker_id, host_for(each.endpoints[0], context), each.endpoints[0].port, each.rack)
        for each in broker.departed.shown_with(image)
    ]
    return ClusterMetadata(image.cluster_id, broker.metadata.controller_id, brokers)


def _topic(
    broker: "Broker",
    context: RequestContext,
    image: MetadataImage,
    wanted: WantedTopic,
    refused: dict[str, ErrorCode],
    live: frozenset[int],
) -> TopicMetadata:
    found = _find(broker, image, wanted, refused, live)
    return found if context.only_node is None else _as_one_node(context.only_node, found)


def _as_one_node(shown: ShownNode, topic: TopicMetadata) -> TopicMetadata:
    """For clients that are to come to this node with everything: it leads what anybody leads."""
    return topic._replace(
        partitions=[
            each if each.leader == NO_LEADER else each._replace(leader=shown.node_id)
            for each in topic.partitions
        ]
    )


def _find(
    broker: "Broker",
    image: MetadataImage,
    wanted: WantedTopic,
    refused: dict[str, ErrorCode],
    live: frozenset[int],
) -> TopicMetadata:
    topic = _topic_of(image, wanted)
    if topic is not None:
        return _describe(broker, topic, live)
    if wanted.name is None or wanted.topic_id != NULL_UUID:
        return TopicMetadata(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id, False, [])
    error = refused.get(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if invalid_name_reason(wanted.name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return TopicMetadata(error, wanted.name, NULL_UUID, False, [])


def _describe(broker: "Broker", topic: TopicImage, live: frozenset[int]) -> TopicMetadata:
    partitions = []
    is_cut_off = broker.partitions.is_cut_off
    for partition in topic.partitions:
        leader, error = partition.leader, ErrorCode.NONE
        if (
            leader not in live
            or (is_cut_off and leader == broker.node_id and len(partition.replicas) > 1)
            or (leader == broker.node_id and _is_offline(broker, topic, partition.index))
        ):
            leader, error = NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        replicas = partition.replicas
        offline = () if live.issuperset(replicas) else tuple(each for each in replicas if each not in live)
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
    return TopicMetadata(
        ErrorCode.NONE, topic.name, topic.topic_id.bytes, is_internal(topic.name), partitions
    )


def _is_offline(broker: "Broker", topic: TopicImage, index: int) -> bool:
    served = broker.partitions.get(topic.name, index)
    return served is not None and served.log.offline is not None
