"""The checksum of a part of this node's replica of a log, whether it leads or follows; see protocol/log_checksum.py."""

import asyncio
from typing import TYPE_CHECKING

from crc32c import crc32c

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.broker.partitions.partition import Partition
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.log_checksum import (
    HIGH_WATERMARK,
    ChecksumRequest,
    LogChecksum,
    decode_checksum_request,
    encode_checksum_reply,
)
from millstream.protocol.record_batch import CorruptBatch, read_header

if TYPE_CHECKING:
    from millstream.broker.node import Broker

# One answer reads at most this much, in pieces between which others have their turn.
MOST_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    wanted = decode_checksum_request(request[position:])
    # One at a time of a connection: a client cannot make the node read more than it waits for.
    context.connection.block()
    broker.spawn(_answer(broker, wanted, context.reply_later()), "log checksum")


async def _answer(broker: "Broker", wanted: ChecksumRequest, reply: LaterReply) -> None:
    try:
        if not broker.is_serving:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "the node is starting")
        partition = broker.partitions.replica(wanted.topic_id, wanted.partition)
        body = encode_checksum_reply(await _checksum(broker, partition, wanted))
    except KafkaError as error:
        if isinstance(error, CorruptBatch):
            broker.corruption(error)
        reply.complete([encode_checksum_reply(None, error.code, error.message)])
    except Exception:
        reply.complete([encode_checksum_reply(None, ErrorCode.UNKNOWN_SERVER_ERROR, "see the node's log")])
        raise
    else:
        reply.complete([body])
    finally:
        reply.context.connection.unblock()


async def _checksum(broker: "Broker", partition: Partition, wanted: ChecksumRequest) -> LogChecksum:
    log = partition.log
    limit = min(max(wanted.max_bytes, 1), MOST_BYTES)
    until = partition.high_watermark
    if wanted.until != HIGH_WATERMARK:
        until = min(until, wanted.until)
    # What lies below the start is gone: the caller sees where it is now.
    offset = max(wanted.offset, log.log_start_offset)
    size = crc = count = 0
    while size < limit and offset < until:
        # Once more at every piece: segments may have gone and records with them.
        try:
            read = log.read(offset, min(limit - size, _PIECE_BYTES), until)
        except CorruptBatch:
            broker.replication.repairs.damaged(partition, offset)
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
    """Of batches that have been verified."""
    count = position = 0
    while position < len(batches):
        position += read_header(batches, position).size_bytes
        count += 1
    return count
