"""DeleteRecords: move the log's start; answered when it is on disk here and every live replica has moved its own."""

import asyncio
import datetime
from typing import TYPE_CHECKING

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from millstream.broker.api.dispatch import RequestContext
from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker

HIGH_WATERMARK = -1


async def handle(
    broker: "Broker", request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    topics = []
    timeout_s = request.timeout.total_seconds()
    for topic in request.topics:
        results = await asyncio.gather(
            *(_delete(broker, topic.name, wanted, timeout_s) for wanted in topic.partitions)
        )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
    return DeleteRecordsResponse(throttle_time=datetime.timedelta(), topics=tuple(topics))


async def _delete(
    broker: "Broker", topic: str, wanted: DeleteRecordsPartition, timeout_s: float
) -> DeleteRecordsPartitionResult:
    error, low_watermark = ErrorCode.NONE, -1
    try:
        partition = broker.partitions.find_for_client(topic, wanted.partition_index)
        log = partition.log
        if log.offline is not None:
            raise log.offline
        if not log.config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "records of a topic that is only compacted are not deleted"
            )
        offset = partition.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is after the end")
        await broker.upkeep.delete_records_before(partition, offset)
        low_watermark = await broker.replication.low_watermark(partition, offset, timeout_s)
        if low_watermark < offset:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "a replica has not deleted the records in time")
    except KafkaError as failure:
        error = failure.code
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error
    )
