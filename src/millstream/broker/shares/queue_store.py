"""The way from a queue to what is stored of it, at the share coordinator, and to its group's coordinator."""

from collections.abc import Awaitable, Callable

from millstream.coordinator.groups.share_requests import OpenQueue
from millstream.coordinator.shares.queue_values import Changes
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.requests import InitializeState, ReadState, StoredState, WriteState
from millstream.doors.caller import Caller
from millstream.doors.cluster import CoordinatorKind, Coordinators
from millstream.protocol.errors import ErrorCode, KafkaError

# Writes say how things are, not what to do: one that may have been carried out is sent again.
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


class QueueStore:
    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators
        self._state_epochs: dict[ShareKey, int] = {}

    async def load(
        self, key: ShareKey, topic: str, leader_epoch: int, resolve: Callable[[int], Awaitable[int]]
    ) -> StoredState:
        """What is stored; a queue that is new begins at `resolve(wish)`, which is stored before it is used."""
        stored = await self._read(key, leader_epoch)
        if stored.state_epoch < 0:
            opened = await self._coordinators.ask(
                _NODE, CoordinatorKind.GROUP, key.group_id, OpenQueue(key.group_id, topic, key.partition)
            )
            await self._begin(key, 0, await resolve(opened.start))
            stored = await self._read(key, leader_epoch)
        if stored.start < 0:
            await self._begin(key, stored.state_epoch, await resolve(-1))
            stored = await self._read(key, leader_epoch)
        self._state_epochs[key] = stored.state_epoch
        return stored

    async def write(self, key: ShareKey, leader_epoch: int, changes: Changes) -> None:
        request = WriteState(
            key, self._state_epochs.get(key, 0), leader_epoch, changes.start, changes.final, changes.batches
        )
        for left in reversed(range(_TRIES)):
            try:
                await self._coordinators.ask(_NODE, CoordinatorKind.SHARE, str(key), request)
                return
            except KafkaError as error:
                if error.code not in _AGAIN or not left:
                    raise

    async def _read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        return await self._coordinators.ask(
            _NODE, CoordinatorKind.SHARE, str(key), ReadState(key, leader_epoch)
        )

    async def _begin(self, key: ShareKey, state_epoch: int, start: int) -> None:
        await self._coordinators.ask(
            _NODE, CoordinatorKind.SHARE, str(key), InitializeState(key, state_epoch, start)
        )

    def forget(self, key: ShareKey) -> None:
        self._state_epochs.pop(key, None)
