"""OffsetForLeaderEpoch, versions 2 to 4: where a leader epoch ends, so that a client can find out whether it read
lost records.
"""

from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.broker.partitions.registry import Partitions
from millstream.protocol.errors import ErrorCode, KafkaError


def handle(
    partitions: Partitions, request: OffsetForLeaderEpochRequest, _call: Call
) -> OffsetForLeaderEpochResponse:
    topics = tuple(
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(_answer(partitions, topic.topic, wanted) for wanted in topic.partitions),
        )
        for topic in request.topics
    )
    return answer(OffsetForLeaderEpochResponse, topics=topics)


def _answer(partitions: Partitions, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    error, epoch, end_offset = ErrorCode.NONE, -1, -1
    try:
        partition = partitions.find_for_client(topic, wanted.partition)
        partition.check_epoch(wanted.current_leader_epoch)
        if partition.log.offline is not None:
            raise partition.log.offline
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch, partition.leader_epoch)
    except KafkaError as failure:
        error = failure.code
    return EpochEndOffset(
        error_code=error, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset
    )
