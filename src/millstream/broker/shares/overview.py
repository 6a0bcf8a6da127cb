"""The administrator's view of the queues that this node leads, and purging them."""

import asyncio

from millstream.broker.shares.log_view import ReadBatch
from millstream.broker.shares.shares import Shares
from millstream.coordinator.shares.ledger import PARKED_MS
from millstream.coordinator.shares.runs import Run
from millstream.coordinator.shares.states import RecordState
from millstream.protocol.queue_call import (
    LookAtQueues,
    PeekAtQueue,
    Peeked,
    PeekedRun,
    Purged,
    PurgeQueue,
    QueueRow,
    QueueRows,
)

# Each reads a batch, for the age of its oldest message.
_ROWS_A_TURN = 200
_MOST_RUNS = 1_000
_PEEK_BYTES = 1 << 20
# In one turn of the event loop; a look into a queue shows no messages after that.
_MOST_READ_BYTES = 16 << 20


async def look(shares: Shares, request: LookAtQueues) -> QueueRows:
    await shares.resting.known()
    wanted = [
        queue
        for queue in (*shares, *shares.resting)
        # One that is being loaded is shown as it rested.
        if queue.is_ready
        and request.group in ("", queue.key.group_id)
        and request.topic in ("", queue.partition.topic)
    ]
    rows: list[QueueRow] = []
    left_bytes = _MOST_READ_BYTES
    for number, queue in enumerate(wanted):
        if left_bytes <= 0 or (number and number % _ROWS_A_TURN == 0):
            await asyncio.sleep(0)
            left_bytes = _MOST_READ_BYTES
        if queue.is_ready:
            left_bytes -= queue.look_at_oldest()
            rows.append(queue.row())
    return QueueRows(tuple(rows))


async def peek(shares: Shares, request: PeekAtQueue) -> Peeked:
    """The messages of a queue, or those it would have if its first consumer came now, through a Millstream door."""
    queue = await shares.look_into(request.group, request.topic, request.partition)
    queue.follow_log_start()
    engine = queue.engine
    first = max(request.offset, engine.start, queue.partition.log.log_start_offset)
    runs = [run for run in engine.runs(first, _MOST_RUNS) if not run.state.is_final]
    if engine.end < queue.upper:
        runs.append(Run(engine.end, queue.upper - 1, RecordState.AVAILABLE))
    shown: list[PeekedRun] = []
    batches: dict[int, memoryview] = {}
    read: list[ReadBatch] = []
    read_bytes = 0
    left = min(request.max_messages, 1_000)
    for run in runs:
        low, high = max(run.first, first), min(run.last, max(run.first, first) + left - 1)
        if left <= 0 or high < low or read_bytes >= _MOST_READ_BYTES:
            break
        left -= high - low + 1
        shown.append(PeekedRun(low, high, _shown(run), run.count, run.due_ms, run.owner))
        while low <= high and read_bytes < _MOST_READ_BYTES:
            if not read or not read[0].batch.first <= low <= read[-1].batch.last:
                read = queue.read_log(low, _PEEK_BYTES)
                read_bytes += sum(len(each.data) for each in read)
            if not read:
                break
            for each in read:
                if each.batch.last >= low and each.batch.first <= high:
                    batches[each.batch.first] = each.data
            low = read[-1].batch.last + 1
    return Peeked(tuple(shown), b"".join(batches[base] for base in sorted(batches)))


def _shown(run: Run) -> str:
    """The state, and why an available message does not come."""
    if run.state is not RecordState.AVAILABLE or not run.due_ms:
        return run.state.name.lower()
    return "in line" if run.due_ms == PARKED_MS else "delayed"


async def purge(shares: Shares, request: PurgeQueue) -> Purged:
    queue = await shares.open(request.group, request.topic, request.partition, from_earliest=True)
    dropped = queue.drop_available(queue.upper)
    await queue.stored()
    return Purged(dropped)
