"""Signs of life to the controller, and the lease that this node has from them."""

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
    """One at a time, so that an answer that comes late cannot give back what a later sign of life gave up."""

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
        """`end_node` is told when the cluster has this node no more."""
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
        """The controller has no other broker to lead what this node leads, though it cannot write."""

    def hurry(self) -> None:
        """There is something that the controller should know at once."""
        self._is_due.set()

    async def run(self, accepted: asyncio.Event) -> None:
        """`accepted` is set with the first that a controller takes."""
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
        """Tell the controller that this node leaves: from now on others may lead its partitions."""
        self._lease.give_up()
        return self._next(wants_to_stop=True)

    async def _give_one(self) -> bool:
        """Whether the controller took it; not where another one was found meanwhile."""
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
        """Before the controller hears that this node cannot write, and lets others lead."""
        self._lease.give_up()
        self._isolation.cut_off(CutOff.DISK)

    async def _taken(self, beat: BrokerHeartbeat, sent_at: float, standing: BrokerStanding) -> None:
        self._is_last = not beat.can_write and not standing.is_fenced
        if not standing.is_fenced:
            self._lease.renew(sent_at, standing.index)
            if self._isolation.is_cut_off_by(CutOff.DISK):
                await self._come_back()
        elif beat.is_serving:
            # Other brokers are there again: the next heartbeat says that this node does not serve.
            self.hurry()

    async def _come_back(self) -> None:
        """Only with the newest metadata: before that, this node would act on old ones."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval_seconds):
                await self._metadata.quorum.read_barrier()
            self._isolation.rejoin(CutOff.DISK)

    async def _unless_another_leads(self, asked: Awaitable[BrokerStanding]) -> BrokerStanding | None:
        """None as soon as there is another controller than the one that was asked, which may never answer."""
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
