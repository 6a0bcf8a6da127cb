"""Metadata: brokers, topics and their partitions; topics that do not exist are created where that is allowed."""

from typing import TYPE_CHECKING
from uuid import UUID

from millstream.broker.addresses import ShownNode, host_for
from millstream.broker.admin import defaults_of
from millstream.broker.dispatch import LaterReply, RequestContext
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage, TopicImage
from millstream.cluster.metadata.names import invalid_name_reason, is_internal
from millstream.cluster.metadata.topics import CreateTopics, NewTopic
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.metadata import (
    BrokerAddress,
    ClusterMetadata,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
    WantedTopic,
    decode_metadata,
    encode_metadata_reply,
)
from millstream.protocol.wire import NULL_UUID

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    wanted = decode_metadata(request, position, context.version)
    missing = _creatable(broker, wanted)
    if not missing:
        if broker.membership is None:
            context.reply([_answer(broker, context, wanted, {})])
        else:
            _answer_when_settled(broker, context, wanted)
        return
    context.connection.block()
    broker.spawn(_create_then_answer(broker, context, context.reply_later(), wanted, missing), "auto-create")


def _answer_when_settled(broker: "Broker", context: RequestContext, wanted: MetadataRequest) -> None:
    reply = context.reply_later()

    def answer() -> None:
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


async def _create_then_answer(
    broker: "Broker", context: RequestContext, reply: LaterReply, wanted: MetadataRequest, missing: list[str]
) -> None:
    refused: dict[str, ErrorCode] = {}
    try:
        command = CreateTopics(tuple(NewTopic(name) for name in missing), defaults=defaults_of(broker))
        try:
            for outcome in await broker.metadata.submit(command):
                if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    refused[outcome.name] = outcome.error.code
        except KafkaError as error:
            refused = dict.fromkeys(missing, error.code)
        reply.complete([_answer(broker, context, wanted, refused)])
    except BaseException:
        # There will be no reply: without this the client would wait for it for ever.
        context.connection.close()
        raise
    finally:
        context.connection.unblock()


def _creatable(broker: "Broker", wanted: MetadataRequest) -> list[str]:
    if not (wanted.topics and wanted.allow_auto_topic_creation and broker.auto_create_topics):
        return []
    if broker.partitions.is_cut_off:
        # It could only wait for a controller; the client is about to be sent to another node.
        return []
    topics = broker.metadata.image.topics
    names = dict.fromkeys(topic.name for topic in wanted.topics if topic.name is not None)
    return [name for name in names if name not in topics and invalid_name_reason(name) is None]


def _answer(
    broker: "Broker", context: RequestContext, wanted: MetadataRequest, refused: dict[str, ErrorCode]
) -> bytes:
    image = broker.metadata.image
    # A client that is sent to a dead leader again does not ask for another one for a second or two.
    live = frozenset(each.broker_id for each in image.live_brokers if not broker.seems_gone(each))
    if wanted.topics is None:
        topics = [_describe(broker, topic, live) for topic in image.topics.values()]
    else:
        topics = [_find(broker, image, topic, refused, live) for topic in wanted.topics]
    if context.only_node is not None:
        cluster = _as_one_node(broker, context.only_node, topics)
    else:
        brokers = [
            BrokerAddress(
                each.broker_id, host_for(each.endpoints[0], context), each.endpoints[0].port, each.rack
            )
            for each in broker.departed.shown_with(image)
        ]
        cluster = ClusterMetadata(image.cluster_id, broker.metadata.controller_id, brokers, topics)
    return encode_metadata_reply(context.version, wanted, cluster)


def _as_one_node(broker: "Broker", shown: ShownNode, topics: list[TopicMetadata]) -> ClusterMetadata:
    """For clients that are to come to this node with everything: it leads what anybody leads."""
    return ClusterMetadata(
        broker.metadata.image.cluster_id,
        shown.node_id,
        [BrokerAddress(*shown, broker.settings.broker.rack)],
        [
            topic._replace(
                partitions=[
                    each if each.leader == NO_LEADER else each._replace(leader=shown.node_id)
                    for each in topic.partitions
                ]
            )
            for topic in topics
        ],
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
