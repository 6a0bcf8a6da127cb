"""A queue's access to its stored state at the share coordinator, and to its group's coordinator."""

from collections.abc import Awaitable, Callable

from millstream.coordinator.groups.share_requests import OpenQueue
from millstream.coordinator.shares.queue_values import Changes
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.requests import (
    MOST_BATCHES,
    InitializeState,
    ReadState,
    ReadSummary,
    StateSummary,
    StoredState,
    WriteState,
)
from millstream.doors.caller import Caller
from millstream.doors.cluster import CoordinatorKind, Coordinators
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import Clock

# Writes are idempotent: one that may have been carried out is sent again.
_TRIES = 3
_AGAIN = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
)
_NODE = Caller(client_id="millstream-queues")


# Epochs count seconds since 2026, to fit into 31 bits.
_EPOCHS_SINCE_S = 1_767_225_600


def new_state_epoch(clock: Clock) -> int:
    """Of a queue without stored state: another one than that of its deleted state, which may still be written to."""
    return max(clock.now_ms() // 1000 - _EPOCHS_SINCE_S, 0)


class QueueStore:
    def __init__(self, coordinators: Coordinators, clock: Clock) -> None:
        self._coordinators = coordinators
        self._clock = clock
        # Of the queue that this node began last: another one of the same name may follow within a second.
        self._last_epoch = -1
        self._state_epochs: dict[ShareKey, int] = {}

    async def load(
        self,
        key: ShareKey,
        topic: str,
        leader_epoch: int,
        kept_of: Callable[[int], int],
        resolve: Callable[[int], Awaitable[int]],
    ) -> StoredState:
        """The stored state; a new queue begins at `resolve(wish)`, which is stored before it is used.

        `kept_of` returns the offset up to which the log has the records of leaders up to an epoch; -1 if unknown.
        """
        stored = await self._read(key, leader_epoch, kept_of)
        if stored.state_epoch < 0:
            opened = await self._coordinators.ask(
                _NODE, CoordinatorKind.GROUP, key.group_id, OpenQueue(key.group_id, topic, key.partition)
            )
            self._last_epoch = max(new_state_epoch(self._clock), self._last_epoch + 1)
            begun = InitializeState(key, self._last_epoch, await resolve(opened.start), leader_epoch)
            await self._begin(begun)
            stored = await self._read(key, leader_epoch, kept_of)
        if stored.start < 0:
            start = await resolve(-1)
            await self._begin(InitializeState(key, stored.state_epoch, start, leader_epoch))
            stored = await self._read(key, leader_epoch, kept_of)
        self._state_epochs[key] = stored.state_epoch
        return stored

    async def has_begun(self, key: ShareKey) -> bool:
        return (await self._summary(key)).start >= 0

    async def write(self, key: ShareKey, leader_epoch: int, changes: Changes) -> None:
        """Store many changes in parts, the start with the last: each part takes the coordinator a turn of its own."""
        epoch, batches = self._state_epochs.get(key, 0), changes.batches
        while len(batches) > MOST_BATCHES:
            some, batches = batches[:MOST_BATCHES], batches[MOST_BATCHES:]
            await self._write(WriteState(key, epoch, leader_epoch, -1, -1, some))
        await self._write(WriteState(key, epoch, leader_epoch, changes.start, changes.final, batches))

    async def _write(self, request: WriteState) -> None:
        for left in reversed(range(_TRIES)):
            try:
                await self._coordinators.ask(_NODE, CoordinatorKind.SHARE, str(request.key), request)
                return
            except KafkaError as error:
                if error.code not in _AGAIN or not left:
                    raise

    async def _read(self, key: ShareKey, leader_epoch: int, kept_of: Callable[[int], int]) -> StoredState:
        former = (await self._summary(key)).leader_epoch
        read = ReadState(key, leader_epoch, former, kept_of(former))
        return await self._coordinators.ask(_NODE, CoordinatorKind.SHARE, str(key), read)

    async def _summary(self, key: ShareKey) -> StateSummary:
        return await self._coordinators.ask(_NODE, CoordinatorKind.SHARE, str(key), ReadSummary(key))

    async def _begin(self, request: InitializeState) -> None:
        await self._coordinators.ask(_NODE, CoordinatorKind.SHARE, str(request.key), request)

    def forget(self, key: ShareKey) -> None:
        self._state_epochs.pop(key, None)
