"""LogChecksum, version 0: the checksum of a part of this node's replica of a log, whether it leads or follows.

Our own API, for `millstream log verify` and `millstream backup`; see protocol/log_checksum.py.
"""

import asyncio

from millstream.broker.api.call import Call
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.protocol.checksum import crc32c
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.log_checksum import HIGH_WATERMARK, ChecksumRequest, LogChecksum
from millstream.protocol.record_batch import CorruptBatch, read_header

# One answer covers at most this much, read in pieces with turns for other work in between.
MOST_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


Answer = tuple[LogChecksum | None, ErrorCode, str]


async def handle(
    partitions: Partitions, faults: StorageFaults, wanted: ChecksumRequest, _call: Call
) -> Answer:
    try:
        partition = partitions.replica(wanted.topic_id, wanted.partition)
        return await _checksum(faults, partition, wanted), ErrorCode.NONE, ""
    except KafkaError as error:
        return None, error.code, error.message


async def _checksum(faults: StorageFaults, partition: Partition, wanted: ChecksumRequest) -> LogChecksum:
    log = partition.log
    limit = min(max(wanted.max_bytes, 1), MOST_BYTES)
    until = partition.high_watermark
    if wanted.until != HIGH_WATERMARK:
        until = min(until, wanted.until)
    # Records below the log's start are gone: the reply tells the caller where the log begins now.
    offset = max(wanted.offset, log.log_start_offset)
    size = crc = count = 0
    while size < limit and offset < until:
        # Read anew for every piece: segments may have been deleted meanwhile.
        try:
            read = log.read(offset, min(limit - size, _PIECE_BYTES), until)
        except CorruptBatch as error:
            faults.damaged(partition, offset, error)
            raise
        if not read.data:
            break
        crc = crc32c(read.data, crc)
        size += len(read.data)
        count += _count(read.data)
        offset = read.next_offset
        await asyncio.sleep(0)
    return LogChecksum(
        log.log_start_offset, partition.high_watermark, log.cleaned_offset, offset, size, count, crc
    )


def _count(batches: memoryview) -> int:
    """The number of batches, which are verified already."""
    count = position = 0
    while position < len(batches):
        position += read_header(batches, position).size_bytes
        count += 1
    return count
