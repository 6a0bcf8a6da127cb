"""Heartbeats to the controller, which renew this node's lease."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from millstream.broker.machine import Machine
from millstream.broker.partitions.registry import CutOff
from millstream.broker.partitions.writability import Writability
from millstream.broker.peers.lease import Isolation, Lease
from millstream.cluster.metadata.brokers import BrokerHeartbeat, BrokerStanding
from millstream.cluster.metadata.service import MetadataService
from millstream.config.settings import ClusterSettings
from millstream.observability.logs import get_logger
from millstream.observability.repeats import Condition
from millstream.protocol.errors import ErrorCode, KafkaError

log = get_logger("millstream.cluster")

_OUSTED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class Heartbeats:
    """One heartbeat at a time: a late answer must not renew a lease that a later heartbeat gave up."""

    def __init__(
        self,
        node_id: int,
        machine: Machine,
        metadata: MetadataService,
        lease: Lease,
        writability: Writability,
        isolation: Isolation,
        cluster: ClusterSettings,
        end_node: Callable[[str], None],
    ) -> None:
        """`end_node` is called when this node's registration is gone or was replaced."""
        self._node_id = node_id
        self._loop = machine.loop
        self._clock = machine.clock
        self._metadata = metadata
        self._lease = lease
        self._writability = writability
        self._isolation = isolation
        self._end_node = end_node
        self._session_seconds = cluster.session_timeout / 1000
        self._interval_seconds = cluster.heartbeat_interval / 1000
        self._untaken = Condition(log, machine.loop.time, "no heartbeat", "heartbeat again")
        self._sequence = 0
        self._is_due = asyncio.Event()
        self._is_last = False
        """This node cannot write, but no other broker can lead its partitions."""

    def hurry(self) -> None:
        """Send the next heartbeat now: it has news for the controller."""
        self._is_due.set()

    async def run(self, accepted: asyncio.Event) -> None:
        """`accepted` is set when a controller accepts the first heartbeat."""
        while True:
            began_at = self._loop.time()
            try:
                if await self._give_one():
                    accepted.set()
                    self._untaken.ended()
            except KafkaError as error:
                if error.code in _OUSTED:
                    self._end_node(error.message)
                    return
                self._untaken.lasts(error=error.message)
            except TimeoutError:
                self._untaken.lasts(error="the controller does not answer")
            with suppress(TimeoutError):
                async with asyncio.timeout_at(began_at + self._interval_seconds):
                    await self._is_due.wait()

    def last(self) -> BrokerHeartbeat:
        """The heartbeat that announces this node's stop: from now on others may lead its partitions."""
        self._lease.give_up()
        return self._next(wants_to_stop=True)

    async def _give_one(self) -> bool:
        """Whether the controller accepted it; False when another controller was found meanwhile."""
        self._is_due.clear()
        can_write = self._writability.can_write
        if not can_write and not self._is_last:
            self._make_way()
        beat = self._next(can_write=can_write, is_serving=not can_write and self._is_last)
        sent_at = self._clock.elapsed()
        standing = await self._unless_another_leads(self._metadata.submit(beat))
        if standing is None:
            self.hurry()
            return False
        await self._taken(beat, sent_at, standing)
        return True

    def _next(
        self, *, wants_to_stop: bool = False, can_write: bool = True, is_serving: bool = False
    ) -> BrokerHeartbeat:
        self._sequence += 1
        return BrokerHeartbeat(
            self._node_id,
            self._metadata.broker_epoch,
            wants_to_stop=wants_to_stop,
            can_write=can_write,
            is_serving=is_serving,
            sequence=self._sequence,
        )

    def _make_way(self) -> None:
        """Stop leading before the controller learns that this node cannot write, and lets others lead."""
        self._lease.give_up()
        self._isolation.cut_off(CutOff.DISK)

    async def _taken(self, beat: BrokerHeartbeat, sent_at: float, standing: BrokerStanding) -> None:
        self._is_last = not beat.can_write and not standing.is_fenced
        if not standing.is_fenced:
            self._lease.renew(sent_at, standing.index)
            if self._isolation.is_cut_off_by(CutOff.DISK):
                await self._come_back()
        elif beat.is_serving:
            # Other brokers are back: the next heartbeat reports that this node does not serve.
            self.hurry()

    async def _come_back(self) -> None:
        """Rejoin after a read barrier: before it, this node would act on old metadata."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval_seconds):
                await self._metadata.quorum.read_barrier()
            self._isolation.rejoin(CutOff.DISK)

    async def _unless_another_leads(self, asked: Awaitable[BrokerStanding]) -> BrokerStanding | None:
        """The answer; None as soon as there is a new controller, as the one that was asked may never answer."""
        found = self._metadata.controller_found
        found.clear()
        task, moved = asyncio.ensure_future(asked), asyncio.ensure_future(found.wait())
        try:
            async with asyncio.timeout(self._session_seconds):
                await asyncio.wait((task, moved), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            moved.cancel()
