"""Queues wherever a partition is led: the engine of this node, or that of another by a call."""

import asyncio
from collections.abc import Sequence

from millstream.broker.routing.calls import Acquire, Look, Peek, Purge, ReleaseAll, Settle
from millstream.broker.routing.routes import Routes
from millstream.doors.access import Authoriser, Operation, Permission, Resource
from millstream.doors.caller import Caller
from millstream.doors.partitions import Place
from millstream.doors.queues import Acquired, Queues, Settled, Settlement, SettlementKind
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.queue_call import LookAtQueues, PeekAtQueue, Peeked, Purged, PurgeQueue, QueueRows

log = get_logger("millstream.doors")

_PATIENCE_SECONDS = 10.0


class RoutedQueues:
    def __init__(self, engine: Queues | None, routes: Routes, authoriser: Authoriser) -> None:
        """`engine` is this node's own; None where there is none."""
        self._engine = engine
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
    ) -> Acquired:
        self._check(caller, group, place)

        def too_late(acquired: Acquired) -> None:
            self._give_back(caller, group, member, place, acquired)

        return await self._routes.at_leader(
            caller,
            place,
            lambda: self._local.acquire(
                caller,
                group,
                member,
                place,
                max_messages=max_messages,
                max_bytes=max_bytes,
                max_wait_s=max_wait_s,
                max_held=max_held,
            ),
            lambda: Acquire(group, member, place, max_messages, max_bytes, max_wait_s, max_held),
            patience_s=max_wait_s + _PATIENCE_SECONDS,
            wait_s=max_wait_s,
            # Messages in a lost answer are available to others when their locks end.
            may_repeat=True,
            late=too_late,
        )

    async def settle(
        self, caller: Caller, group: str, member: str, place: Place, settlements: Sequence[Settlement]
    ) -> tuple[Settled, ...]:
        self._check(caller, group, place)
        return await self._routes.at_leader(
            caller,
            place,
            lambda: self._local.settle(caller, group, member, place, settlements),
            lambda: Settle(group, member, place, tuple(settlements)),
            patience_s=_PATIENCE_SECONDS,
            wait_s=_PATIENCE_SECONDS,
            may_repeat=False,
        )

    async def release_all(self, caller: Caller, group: str, member: str) -> None:
        self._authoriser.check(caller, Permission(Operation.READ, Resource.GROUP, group))

        async def of_node(node_id: int) -> None:
            try:
                if node_id == self._routes.view.node_id:
                    await self._local.release_all(caller, group, member)
                else:
                    await self._routes.link(node_id).call(
                        caller, ReleaseAll(group, member), _PATIENCE_SECONDS
                    )
            except KafkaError as error:
                # Messages that the node has handed out are available to others when their locks end.
                log.info("locks not released", node=node_id, group=group, error=error.message)

        await asyncio.gather(*(of_node(broker.broker_id) for broker in self._routes.view.brokers()))

    async def look(self, caller: Caller, request: LookAtQueues) -> QueueRows:
        """Of all nodes; KafkaError when one of them does not answer."""
        what = Permission(Operation.DESCRIBE, Resource.GROUP, request.group)
        self._authoriser.check(
            caller, what if request.group else Permission(Operation.DESCRIBE, Resource.CLUSTER)
        )

        async def of_node(node_id: int) -> QueueRows:
            if node_id == self._routes.view.node_id:
                return await self._local.look(caller, request)
            return await self._routes.link(node_id).call(caller, Look(request), _PATIENCE_SECONDS)

        nodes = [broker.broker_id for broker in self._routes.view.brokers()]
        found = await asyncio.gather(*map(of_node, nodes))
        rows = (row for each in found for row in each.queues)
        return QueueRows(tuple(sorted(rows, key=lambda row: (row.group, row.topic, row.partition))))

    async def peek(self, caller: Caller, request: PeekAtQueue) -> Peeked:
        place = Place(request.topic, request.partition)
        self._check(caller, request.group, place)
        return await self._routes.at_leader(
            caller,
            place,
            lambda: self._local.peek(caller, request),
            lambda: Peek(request),
            patience_s=_PATIENCE_SECONDS,
            wait_s=_PATIENCE_SECONDS,
            may_repeat=True,
        )

    async def purge(self, caller: Caller, request: PurgeQueue) -> Purged:
        place = Place(request.topic, request.partition)
        self._check(caller, request.group, place)
        return await self._routes.at_leader(
            caller,
            place,
            lambda: self._local.purge(caller, request),
            lambda: Purge(request),
            patience_s=_PATIENCE_SECONDS,
            wait_s=_PATIENCE_SECONDS,
            may_repeat=False,
        )

    def _check(self, caller: Caller, group: str, place: Place) -> None:
        self._authoriser.check(caller, Permission(Operation.READ, Resource.GROUP, group))
        self._authoriser.check(caller, Permission(Operation.READ, Resource.TOPIC, place.topic))

    def _give_back(self, caller: Caller, group: str, member: str, place: Place, acquired: Acquired) -> None:
        """The caller has gone: give back the messages that were handed out."""
        if not acquired.ranges:
            return
        settlements = [
            Settlement(each.first_offset, each.last_offset, SettlementKind.UNDELIVERED)
            for each in acquired.ranges
        ]

        async def release() -> None:
            try:
                await self.settle(caller, group, member, place, settlements)
            except KafkaError as error:
                log.info("locks not released", place=str(place), group=group, error=error.message)

        task = asyncio.get_running_loop().create_task(
            release(), name="release messages of a caller that has gone"
        )
        self._releasing[task] = None
        task.add_done_callback(lambda done: self._releasing.pop(done, None))

    @property
    def _local(self) -> Queues:
        if self._engine is None:
            raise NotDone(ErrorCode.UNSUPPORTED_VERSION, "this node keeps no queues")
        return self._engine
