"""Queues of any partition: by this node's engine, or by a call to the partition's leader."""

import asyncio
from collections.abc import Sequence

from millstream.broker.routing.calls import (
    Acquire,
    Look,
    NodeCall,
    Peek,
    Purge,
    ReleaseAll,
    ReloadQueues,
    Settle,
)
from millstream.broker.routing.routes import A, Routes
from millstream.doors.access import Authoriser, Operation, Permission, Resource
from millstream.doors.caller import Caller
from millstream.doors.partitions import Place
from millstream.doors.queues import Acquired, Settled, Settlement
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError
from millstream.protocol.queue_call import (
    LookAtQueues,
    PeekAtQueue,
    Peeked,
    Purged,
    PurgeQueue,
    QueueRow,
    QueueRows,
)

log = get_logger("millstream.doors")

_PATIENCE_SECONDS = 10.0


class RoutedQueues:
    def __init__(self, routes: Routes, authoriser: Authoriser) -> None:
        self._routes = routes
        self._authoriser = authoriser
        self._releasing: dict[asyncio.Task[None], None] = {}

    async def acquire(
        self,
        caller: Caller,
        group: str,
        member: str,
        place: Place,
        *,
        max_messages: int,
        max_bytes: int,
        max_wait_s: float,
        max_held: int | None = None,
        whole_batches: bool = False,
    ) -> Acquired:
        self._check(caller, group, place)

        def too_late(acquired: Acquired) -> None:
            self._give_back(caller, group, member, place, acquired)

        return await self._routes.at_leader(
            caller,
            place,
            Acquire(group, member, place, max_messages, max_bytes, max_wait_s, max_held, whole_batches),
            patience_s=max_wait_s + _PATIENCE_SECONDS,
            wait_s=max_wait_s,
            # Messages of a lost answer are available again when their locks end.
            may_repeat=True,
            late=too_late,
        )

    async def settle(
        self,
        caller: Caller,
        group: str,
        member: str,
        place: Place,
        settlements: Sequence[Settlement],
        *,
        together: bool = False,
    ) -> tuple[Settled, ...]:
        call = Settle(group, member, place, tuple(settlements), together)
        return await self._at_leader(caller, group, place, call, may_repeat=False)

    async def release_all(self, caller: Caller, group: str, member: str) -> None:
        self._authoriser.check(caller, Permission(Operation.READ, Resource.GROUP, group))
        answers = await self._routes.at_all(caller, ReleaseAll(group, member), _PATIENCE_SECONDS)
        for node_id, error in answers.items():
            if isinstance(error, KafkaError):
                # Messages that the node has handed out are available again when their locks end.
                log.info("locks not released", node=node_id, group=group, error=error.message)

    async def reload(self, caller: Caller, group: str, topic: str) -> None:
        """Failures are only logged: a node that does not answer is soon replaced, or its next write is refused."""
        answers = await self._routes.at_all(caller, ReloadQueues(group, topic), _PATIENCE_SECONDS)
        for node_id, error in answers.items():
            if isinstance(error, KafkaError):
                log.info("queues not reloaded", node=node_id, group=group, topic=topic, error=error.message)

    async def look(self, caller: Caller, request: LookAtQueues) -> QueueRows:
        """Queues of all nodes; KafkaError when a node does not answer."""
        what = Permission(Operation.DESCRIBE, Resource.GROUP, request.group)
        self._authoriser.check(
            caller, what if request.group else Permission(Operation.DESCRIBE, Resource.CLUSTER)
        )
        rows: list[QueueRow] = []
        for found in (await self._routes.at_all(caller, Look(request), _PATIENCE_SECONDS)).values():
            if isinstance(found, KafkaError):
                raise found
            rows += found.queues
        return QueueRows(tuple(sorted(rows, key=lambda row: (row.group, row.topic, row.partition))))

    async def peek(self, caller: Caller, request: PeekAtQueue) -> Peeked:
        place = Place(request.topic, request.partition)
        return await self._at_leader(caller, request.group, place, Peek(request), may_repeat=True)

    async def purge(self, caller: Caller, request: PurgeQueue) -> Purged:
        place = Place(request.topic, request.partition)
        return await self._at_leader(caller, request.group, place, Purge(request), may_repeat=False)

    async def _at_leader(
        self, caller: Caller, group: str, place: Place, call: NodeCall[A], *, may_repeat: bool
    ) -> A:
        self._check(caller, group, place)
        patience = _PATIENCE_SECONDS
        return await self._routes.at_leader(
            caller, place, call, patience_s=patience, wait_s=patience, may_repeat=may_repeat
        )

    def _check(self, caller: Caller, group: str, place: Place) -> None:
        self._authoriser.check(caller, Permission(Operation.READ, Resource.GROUP, group))
        self._authoriser.check(caller, Permission(Operation.READ, Resource.TOPIC, place.topic))

    def _give_back(self, caller: Caller, group: str, member: str, place: Place, acquired: Acquired) -> None:
        """Release messages that were handed out to a caller that has gone."""
        if not acquired.ranges:
            return

        async def release() -> None:
            try:
                await self.settle(caller, group, member, place, acquired.undelivered())
            except KafkaError as error:
                log.info("locks not released", place=str(place), group=group, error=error.message)

        task = asyncio.get_running_loop().create_task(
            release(), name="release messages of a caller that has gone"
        )
        self._releasing[task] = None
        task.add_done_callback(lambda done: self._releasing.pop(done, None))
