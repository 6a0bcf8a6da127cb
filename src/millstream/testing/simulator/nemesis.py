"""The faults of a run, drawn from the seed: one or two at a time, each with its end."""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from millstream.observability.logs import get_logger
from millstream.protocol.record_batch import CorruptBatch
from millstream.testing.disk import Fault, Operation, SimulatedDisk
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.decay import Decay
from millstream.testing.simulator.node import SimulatedNode
from millstream.testing.simulator.quorum_watch import QuorumWatch

log = get_logger("millstream.nemesis")

FaultWork = Callable[[], Coroutine[Any, Any, None]]

KINDS = (
    "kill", "lose_power", "stop_in_order", "pause", "storm", "ambush", "empty_disk",
    "isolate", "cut_pair", "cut_one_way", "slow_link", "lose_segments", "reset",
    "slow_disk", "full_disk", "failing_sync", "bit_rot", "jump_clock",
)  # fmt: skip
"""The faults of the plain profile, whose draws depend on their order."""
ALL_KINDS = (
    *KINDS,
    "blackout", "two_empty_disks", "halves", "stuck_disk", "full_disks_in_turn", "full_controller",
    "refused_quorum_log",
)  # fmt: skip
TORN_BLACKOUT = "torn_blackout"
"""Drawn separately: otherwise it is rare that every log is in doubt."""

_RESTART_SECONDS = (0.2, 6.0)
_CUT_SECONDS = (0.5, 8.0)


class Nemesis:
    """Runs outside of all machines. After `heal` everything works again, and every node is started."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        quorum: QuorumWatch,
        kinds: Sequence[str] = (),
        gap_seconds: float | None = None,
        at_once: int | None = None,
    ) -> None:
        self.count = 0
        self._cluster = cluster
        self._random = random
        self._quorum = quorum
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._busy: dict[str, None] = {}
        self._emptied: dict[str, None] = {}
        drawn = random.sample(KINDS, random.randint(2, 6))
        # Each run has a few kinds only: all of them at once would hide each other's effects.
        self.kinds = tuple(kinds or drawn)
        decay = Decay(cluster, random, quorum, self._while_down)
        self._works: list[FaultWork] = [
            getattr(self, f"_{kind}", None) or getattr(decay, kind) for kind in self.kinds
        ]
        self._rotten = random.choice(list(cluster.nodes.values()))
        gap, together = random.choice((0.5, 2.0, 4.0)), random.choice((1, 1, 2))
        self._gap = gap_seconds or gap
        self._at_once = at_once or together

    def start(self) -> None:
        loop = self._cluster.loop
        self._tasks = [loop.create_task(self._trouble(), name="nemesis") for _ in range(self._at_once)]
        self._tasks.append(loop.create_task(self._look_after(), name="keeper"))

    async def heal(self) -> None:
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._cluster.network.heal_all()
        for node in self._cluster.nodes.values():
            node.machine.disk.faults.clear()
            node.machine.disk.capacity_bytes = None
            node.machine.disk_seconds = 0.0005
            # A broker refuses messages from an hour away, by its clock.
            node.machine.clock.offset_ms = 0
            if node.process.is_paused:
                self._cluster.loop.resume(node.process)
            if node.broker is not None and node.has_failed_logs:
                # A log whose fsync failed stays offline for the program's life, and says so.
                self._note("killed for its failed logs", node.name)
                node.crash(power_loss=False)
            if not node.is_up and node.node_id not in self._cluster.removed:
                node.start()
        self._tasks = [self._cluster.loop.create_task(self._look_after(), name="keeper")]

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _trouble(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._gap))
            fault = self._random.choice(self._works)
            self.count += 1
            await fault()

    async def _look_after(self) -> None:
        """A program that ended by itself is restarted, as by a supervisor."""
        while True:
            await asyncio.sleep(1.0)
            for node in self._cluster.nodes.values():
                if node.node_id in self._cluster.removed:
                    continue
                if not node.is_up and (node.ended is not None or self._is_over):
                    self._note("restarted", node.name, reason=node.ended)
                    node.start()

    async def strike(self, node_id: int) -> None:
        """Kill a node that the caller has brought to a critical point."""
        if not self._is_over:
            self.count += 1
            await self._end(self._cluster.nodes[node_id], power_loss=self._random.random() < 0.5)

    def _note(self, what: str, *where: str, **details: object) -> None:
        log.warning(what, where=list(where), **details)

    def _any(self) -> SimulatedNode:
        return self._random.choice(list(self._cluster.nodes.values()))

    def _two(self) -> tuple[str, str]:
        one, other = self._random.sample(self._cluster.names, 2)
        return one, other

    async def _sleep(self, shortest: float, longest: float) -> None:
        await asyncio.sleep(self._random.uniform(shortest, longest))

    # -- programs and machines

    async def _kill(self) -> None:
        await self._end(self._any(), power_loss=False)

    async def _lose_power(self) -> None:
        await self._end(self._any(), power_loss=True)

    async def _end(self, node: SimulatedNode, *, power_loss: bool) -> None:
        if not node.is_up or node.name in self._busy:
            return
        self._note("power lost" if power_loss else "killed", node.name)
        node.crash(power_loss=power_loss)
        await self._sleep(*_RESTART_SECONDS)
        self._start(node)

    async def _while_down(self, node: SimulatedNode, work: Callable[[], None]) -> None:
        """Stop or kill the node, do `work` on its disk, and start it again."""
        if not node.is_up or node.name in self._busy or node.name in self._cluster.spoken_for:
            return
        if self._random.random() < 0.5:
            self._note("stopped", node.name)
            self._busy[node.name] = None
            try:
                await node.stop()
            finally:
                del self._busy[node.name]
        if node.is_up:
            self._note("killed", node.name)
            node.crash(power_loss=self._random.random() < 0.5)
        work()
        await self._sleep(*_RESTART_SECONDS)
        self._start(node)

    async def _storm(self) -> None:
        """Kill random nodes and restart them at once, so that elections meet voters that just restarted."""
        self._note("storm")
        for _ in range(self._random.randint(5, 25)):
            node = self._any()
            if node.is_up and node.name not in self._busy:
                node.crash(power_loss=self._random.random() < 0.5)
                await self._sleep(0.0, 0.05)
                self._start(node)
            await self._sleep(0.0, 0.5)

    async def _ambush(self) -> None:
        """Disturb an election of the quorum: kill the voter as it votes, then cut off the candidate."""
        nodes = self._cluster.nodes
        old = nodes.get(self._quorum.leader_id or 0)
        if old is None or not old.is_up or old.name in self._busy:
            return
        self._note("ambush", old.name)
        old.crash(power_loss=False)
        vote: asyncio.Future[tuple[int, int]] = self._cluster.loop.create_future()

        def voted(voter: int, candidate: int) -> None:
            if not vote.done():
                vote.set_result((voter, candidate))

        self._quorum.voted = voted
        try:
            async with asyncio.timeout(8.0):
                voter, candidate = await vote
        except TimeoutError:
            return
        finally:
            self._start(old)
        if nodes[voter].is_up and nodes[voter].name not in self._busy:
            nodes[voter].crash(power_loss=True)
            nodes[voter].start()
        # The vote reaches the candidate, but nothing that follows from it gets out.
        await asyncio.sleep(3 * self._cluster.network.base_delay)
        await self._cut(self._around(nodes[candidate]))

    async def _stop_in_order(self) -> None:
        node = self._any()
        if not node.is_up or node.name in self._busy:
            return
        self._note("stopped", node.name)
        self._busy[node.name] = None
        try:
            await node.stop()
        finally:
            del self._busy[node.name]
        await self._sleep(*_RESTART_SECONDS)
        self._start(node)

    def _start(self, node: SimulatedNode) -> None:
        if not node.is_up and node.node_id not in self._cluster.given_up:
            node.start()

    async def _empty_disk(self) -> None:
        """A node returns with an empty disk under a known id: the other nodes must refuse it."""
        node, spoken_for = self._any(), self._cluster.spoken_for
        if not node.is_up or node.name in self._busy or node.name in spoken_for:
            return
        if len(self._emptied) >= len(self._cluster.addresses) - 1:
            # One of the first nodes keeps its disk: with all disks empty, founding a new cluster would be correct.
            return
        self._note("empty disk", node.name)
        self._busy[node.name] = spoken_for[node.name] = self._emptied[node.name] = None
        node.crash(power_loss=False)
        kept = node.machine.disk
        try:
            node.machine.disk = SimulatedDisk(self._random.getrandbits(64))
            self._start(node)
            await self._sleep(2.0, 6.0)
        finally:
            if node.is_up:
                node.crash(power_loss=True)
            node.machine.disk = kept
            del self._busy[node.name], spoken_for[node.name], self._emptied[node.name]
        self._start(node)

    async def _two_empty_disks(self) -> None:
        """Two nodes return with empty disks at the same time: together they must not found a cluster."""
        await asyncio.gather(self._empty_disk(), self._empty_disk())

    async def _torn_blackout(self) -> None:
        """A blackout amid writes: most logs end with a torn batch after their synced part, and are in doubt."""
        await self._blackout(self._tear)

    def _tear(self, node: SimulatedNode) -> None:
        disk = node.machine.disk
        logs = sorted(
            path for path in disk.paths() if path.startswith("/data/topics/") and path.endswith(".log")
        )
        for path in {each.rpartition("/")[0]: each for each in logs}.values():
            if self._random.random() < 0.8:
                file = disk.open(path)
                file.pwrite([self._random.randbytes(self._random.randint(1, 100))], file.size())
                file.sync()
                file.close()

    async def _blackout(self, work: Callable[[SimulatedNode], None] = lambda _: None) -> None:
        """All nodes lose power at once, `work` is done on each machine, and they restart one by one."""
        self._note("blackout")
        nodes = [node for node in self._cluster.nodes.values() if node.is_up and node.name not in self._busy]
        for node in nodes:
            node.crash(power_loss=True)
            work(node)
        self._random.shuffle(nodes)
        for node in nodes:
            await self._sleep(0.0, 1.5)
            self._start(node)

    async def _pause(self) -> None:
        node = self._any()
        process = node.process
        if not node.is_up or process.is_paused:
            return
        self._note("paused", node.name)
        process.is_paused = True
        await self._sleep(0.5, 6.0)
        if process.is_paused:
            self._note("resumed", node.name)
            self._cluster.loop.resume(process)

    async def _jump_clock(self) -> None:
        node = self._any()
        node.machine.clock.offset_ms += self._random.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        self._note("clock jumped", node.name, offset_ms=node.machine.clock.offset_ms)

    # -- the network

    async def _isolate(self) -> None:
        await self._cut(self._around(self._any()))

    def _around(self, node: SimulatedNode) -> list[tuple[str, str]]:
        others = [name for name in self._cluster.names if name != node.name]
        return [(node.name, other) for other in others] + [(other, node.name) for other in others]

    async def _cut_pair(self) -> None:
        one, other = self._two()
        await self._cut([(one, other), (other, one)])

    async def _cut_one_way(self) -> None:
        node = self._any()
        others = self._random.sample(
            [name for name in self._cluster.names if name != node.name], self._random.choice((1, 2))
        )
        ways = [(node.name, other) for other in others]
        await self._cut(ways if self._random.random() < 0.5 else [(there, here) for here, there in ways])

    async def _halves(self) -> None:
        """Two sides that cannot reach each other; one of them may be a majority."""
        names = self._cluster.names
        here = self._random.sample(names, self._random.randint(1, len(names) - 1))
        there = [name for name in names if name not in here]
        await self._cut([way for one in here for other in there for way in ((one, other), (other, one))])

    async def _cut(self, ways: list[tuple[str, str]]) -> None:
        network = self._cluster.network
        self._note("cut", *(f"{source}>{target}" for source, target in ways))
        for source, target in ways:
            network.cut(source, target)
        await self._sleep(*_CUT_SECONDS)
        self._note("healed", *(f"{source}>{target}" for source, target in ways))
        for source, target in ways:
            network.heal(source, target)

    async def _slow_link(self) -> None:
        one, other = self._two()
        self._note("slow", f"{one}>{other}")
        self._cluster.network.slow(one, other, self._random.choice((0.02, 0.3, 1.0)))
        await self._sleep(*_CUT_SECONDS)
        self._cluster.network.slow(one, other, 0.0)

    async def _lose_segments(self) -> None:
        self._cluster.network.loss = self._random.choice((0.01, 0.1, 0.3))
        self._note("loss", share=self._cluster.network.loss)
        await self._sleep(*_CUT_SECONDS)
        self._cluster.network.loss = 0.0

    async def _reset(self) -> None:
        one, other = self._two()
        self._note("reset", one, other)
        self._cluster.network.reset(one, other)

    # -- disks

    async def _slow_disk(self) -> None:
        node = self._any()
        node.machine.disk_seconds = self._random.choice((0.01, 0.1, 0.5))
        self._note("slow disk", node.name, seconds=node.machine.disk_seconds)
        await self._sleep(*_CUT_SECONDS)
        node.machine.disk_seconds = 0.0005

    async def _stuck_disk(self) -> None:
        """Disk requests take seconds: nothing fails, and nothing progresses."""
        node = self._any()
        node.machine.disk_seconds = self._random.choice((2.0, 5.0))
        self._note("stuck disk", node.name, seconds=node.machine.disk_seconds)
        await self._sleep(2.0, 12.0)
        node.machine.disk_seconds = 0.0005

    async def _full_disk(self) -> None:
        await self._fill(self._any(), _CUT_SECONDS)

    async def _full_disks_in_turn(self) -> None:
        """Fill the disks one after the other, so that each successor meets a full disk too."""
        for node in self._random.sample(list(self._cluster.nodes.values()), len(self._cluster.nodes)):
            await self._fill(node, (0.5, 5.0))

    async def _full_controller(self) -> None:
        """Longer than an election takes; the next controller may be hit next."""
        node = self._controller()
        if node is not None:
            await self._fill(node, (3.0, 12.0))

    async def _fill(self, node: SimulatedNode, seconds: tuple[float, float]) -> None:
        disk = node.machine.disk
        disk.capacity_bytes = disk.used_bytes() + self._random.randrange(2000)
        self._note("full disk", node.name)
        await self._sleep(*seconds)
        self._note("room again", node.name)
        disk.capacity_bytes = None

    def _controller(self) -> SimulatedNode | None:
        return self._cluster.nodes.get(self._quorum.leader_id or 0)

    async def _refused_quorum_log(self) -> None:
        """Only the quorum's log has no room, as when it lies on a disk of its own."""
        node = self._controller() if self._random.random() < 0.5 else self._any()
        if node is None:
            return
        faults = node.machine.disk.faults
        self._note("quorum log refused", node.name)
        fault = faults.add(Fault(Operation.WRITE, errno.ENOSPC, path="*.wal*", times=None))
        await self._sleep(1.0, 10.0)
        faults.remove(fault)

    async def _bit_rot(self) -> None:
        """On one machine only, so that a sound copy is left; not in records that other replicas may not have."""
        node = self._rotten
        disk = node.machine.disk
        logs = [path for path in disk.paths() if path.startswith("/data/topics/") and path.endswith(".log")]
        if not logs or not node.is_up:
            return
        path = self._random.choice(logs)
        data = disk.read(path)
        position = self._random.randrange(max(1, len(data) // 2))
        bit = self._random.randrange(8) if len(data) >= 200 else 0
        if len(data) >= 200 and _is_committed(node, path, position):
            disk.flip_bit(path, position, bit)
            self._note("bit rot", node.name, path=path, position=position)

    async def _failing_sync(self) -> None:
        node = self._any()
        self._note("failing sync", node.name)
        node.machine.disk.faults.add(
            Fault(
                Operation.SYNC,
                errno.EIO,
                skip=self._random.randrange(5),
                times=self._random.choice((1, 1, 3)),
            )
        )
        await self._sleep(0.5, 3.0)
        node.machine.disk.faults.clear()


def _is_committed(node: SimulatedNode, path: str, position: int) -> bool:
    """Whether other replicas are known to have the records there."""
    for partition in () if node.serving is None else node.serving.partitions:
        for segment in partition.log.segments if path.startswith(f"{partition.log.directory}/") else ():
            if segment.log_path == path:
                upper = partition.high_watermark
                if segment.summary.end_offset <= upper:
                    return True
                with suppress(CorruptBatch):
                    end = segment.position_of(node.machine.disk, upper)
                    return end is not None and position < end
    return False
