"""DeleteRecords, versions 0 to 2: move the log's start; answered when the new start is on disk here and on every live
replica.
"""

import asyncio

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.upkeep import Upkeep
from millstream.broker.replicas.replication import Replication
from millstream.protocol.errors import ErrorCode, KafkaError

HIGH_WATERMARK = -1


async def handle(
    partitions: Partitions,
    upkeep: Upkeep,
    replication: Replication,
    request: DeleteRecordsRequest,
    _call: Call,
) -> DeleteRecordsResponse:
    topics = []
    timeout_s = request.timeout.total_seconds()
    for topic in request.topics:
        results = await asyncio.gather(
            *(
                _delete(partitions, upkeep, replication, topic.name, wanted, timeout_s)
                for wanted in topic.partitions
            )
        )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
    return answer(DeleteRecordsResponse, topics=tuple(topics))


async def _delete(
    partitions: Partitions,
    upkeep: Upkeep,
    replication: Replication,
    topic: str,
    wanted: DeleteRecordsPartition,
    timeout_s: float,
) -> DeleteRecordsPartitionResult:
    error, low_watermark = ErrorCode.NONE, -1
    try:
        partition = partitions.find_for_client(topic, wanted.partition_index)
        log = partition.log
        if log.offline is not None:
            raise log.offline
        if not log.config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "records of a topic that is only compacted are not deleted"
            )
        offset = partition.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the log has no offset {offset}")
        await upkeep.delete_records_before(partition, offset)
        low_watermark = await replication.low_watermark(partition, offset, timeout_s)
        if low_watermark < offset:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "a replica has not deleted the records in time")
    except KafkaError as failure:
        error = failure.code
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error
    )
