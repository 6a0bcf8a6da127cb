"""Records by their time. Batches are found on the loop and unpacked in a thread, however many say that they have one.

A batch's header is its producer's word: it may name a time that none of its records has.
"""

from functools import partial

from millstream.broker.server.long_work import LongWork
from millstream.storage.log import PartitionLog
from millstream.storage.lookup import OpenLimit, TimestampOffset, batch_for_timestamp
from millstream.storage.lookup import largest_timestamp as largest_of_closed
from millstream.storage.segment import NO_TIMESTAMP


async def offset_at(long_work: LongWork, log: PartitionLog, timestamp: int) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp` or later."""
    from_offset, limit = 0, OpenLimit()
    while (batch := batch_for_timestamp(log, timestamp, from_offset)) is not None:
        found = await long_work.apart(partial(batch.first_record, timestamp, log.log_start_offset, limit))
        if log.offline is not None:
            # The topic was deleted meanwhile, or the log cannot be read any more.
            raise log.offline
        if found is not None and found.offset >= log.log_start_offset:
            return found
        # Where the log's start has moved past what was found, the search begins again from there.
        from_offset = log.log_start_offset if found is not None else batch.header.last_offset + 1
    return None


async def largest_timestamp(long_work: LongWork, log: PartitionLog) -> int:
    """Of all records of the log; -1 when there is none."""
    offset: int | None = log.log_start_offset
    largest, begun = NO_TIMESTAMP, None
    while offset is not None:
        found = largest_of_closed(log, offset)
        largest, begun, offset = max(largest, found.timestamp), begun or found.begun, found.goes_on_at
        if offset is not None:
            # Not all at once: the log may begin within a segment of any size.
            await long_work.pause()
            if log.offline is not None:
                raise log.offline
    if begun is None:
        return largest
    opened = partial(begun.largest_timestamp, log.log_start_offset, OpenLimit())
    return max(largest, await long_work.apart(opened))
