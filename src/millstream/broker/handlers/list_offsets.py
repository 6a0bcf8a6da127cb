"""ListOffsets, versions 1 to 11: the first and last offset, the offset of a time, of the largest timestamp.

Not done: tiered storage (its special timestamps find nothing).
"""

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.reads import largest_timestamp, offset_at
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.broker.server.long_work import LongWork
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.storage.lookup import TimestampOffset

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
READ_COMMITTED = 1
_NOT_FOUND = TimestampOffset(-1, -1, -1)


async def handle(
    partitions: Partitions,
    faults: StorageFaults,
    long_work: LongWork,
    request: ListOffsetsRequest,
    call: Call,
) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        answers = [
            await _answer(partitions, faults, long_work, request, topic.name, wanted, call)
            for wanted in topic.partitions
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers)))
    return answer(ListOffsetsResponse, topics=tuple(topics))


async def _answer(
    partitions: Partitions,
    faults: StorageFaults,
    long_work: LongWork,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    call: Call,
) -> ListOffsetsPartitionResponse:
    error, found, partition = ErrorCode.NONE, _NOT_FOUND, None
    try:
        if call.is_abandoned:
            # Each look-up by time may take long.
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the client has gone")
        partition = partitions.find_for_client(topic, wanted.partition_index)
        partition.check_epoch(wanted.current_leader_epoch)
        if partition.log.offline is not None:
            raise partition.log.offline
        found = await _look_up(long_work, partition, wanted.timestamp, request.isolation_level)
        # A look-up in a thread may have taken long: other nodes may have taken over meanwhile.
        if partitions.find_for_client(topic, wanted.partition_index) is not partition:
            raise partition.not_leader()
    except KafkaError as failure:
        error = failure.code
        call.count_error(error)
        if error == ErrorCode.CORRUPT_MESSAGE:
            faults.damaged(partition, -1, failure)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=error,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


async def _look_up(
    long_work: LongWork, partition: Partition, timestamp: int, isolation_level: int
) -> TimestampOffset:
    log = partition.log
    end = partition.last_stable_offset if isolation_level == READ_COMMITTED else partition.high_watermark
    state = partition.replication
    if state is not None and end < state.epoch_start_offset and timestamp not in (EARLIEST, EARLIEST_LOCAL):
        # A new leader does not know the committed offset of the previous one yet: an answer might go backwards.
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE, "the leader is new and does not know what is committed; try again"
        )
    if timestamp == LATEST:
        return TimestampOffset(-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return TimestampOffset(
            -1, start, log.epochs.epoch_of(start) if log.epochs.entries else partition.leader_epoch
        )
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND
    if timestamp == MAX_TIMESTAMP:
        timestamp = await largest_timestamp(long_work, log)
    elif timestamp < 0:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
    found = await offset_at(long_work, log, timestamp) if timestamp >= 0 else None
    return found if found is not None and found.offset < end else _NOT_FOUND
