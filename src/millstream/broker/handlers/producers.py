"""Idempotent producers: InitProducerId, versions 0 to 5, and DescribeProducers, version 0.

Not done: transactions. A transactional id is refused, and no producer has a transaction open.
"""

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import NoTransactions, answer, code_of, message_of, others_first
from millstream.broker.partitions.registry import Partitions
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode, KafkaError

_NO_ID = -1


async def init_producer_id(
    metadata: MetadataService, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    """A new producer id for an idempotent producer."""
    if request.transactional_id is not None:
        return _refused(NoTransactions().code if request.transactional_id else ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await metadata.producer_ids.take()
    except KafkaError as error:
        return _refused(error.code)
    return answer(
        InitProducerIdResponse, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return answer(InitProducerIdResponse, error_code=code, producer_id=_NO_ID, producer_epoch=_NO_ID)


# In one reply: more would hold up other requests.
_MOST_PRODUCERS = 10_000


async def describe_producers(
    partitions: Partitions, request: DescribeProducersRequest, _call: Call
) -> DescribeProducersResponse:
    """The idempotent producers of partitions that this node leads or follows."""
    topics, room = [], _MOST_PRODUCERS
    for topic in request.topics:
        found = []
        for index in topic.partition_indexes:
            await others_first()
            described = _describe(partitions, topic.name, index, room)
            room -= len(described.active_producers)
            found.append(described)
        topics.append(TopicResponse(name=topic.name, partitions=tuple(found)))
    return answer(DescribeProducersResponse, topics=tuple(topics))


def _describe(partitions: Partitions, topic: str, index: int, room: int) -> PartitionResponse:
    error: KafkaError | None = None
    producers: tuple[ProducerState, ...] = ()
    try:
        producers = _producers(partitions, topic, index, room)
    except KafkaError as failure:
        error = failure.as_value()
    return PartitionResponse(
        partition_index=index,
        error_code=code_of(error),
        error_message=message_of(error),
        active_producers=producers,
    )


def _producers(partitions: Partitions, topic: str, index: int, room: int) -> tuple[ProducerState, ...]:
    log = partitions.find_replica(topic, index).log
    if log.offline is not None:
        raise log.offline
    if len(log.producers) > room:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic}-{index} has {len(log.producers)} producers; one reply describes at most {_MOST_PRODUCERS}",
        )
    return tuple(
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=-1,
        )
        for each in log.producers.active()
    )
