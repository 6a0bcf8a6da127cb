"""A simulated machine: its disk, its clock, its randomness, and the program that runs on it."""

import asyncio
from collections.abc import Sequence
from random import Random
from uuid import UUID

from millstream.runtime.host import Finished, Running
from millstream.runtime.workers import Workers
from millstream.storage.compaction.job import decode_job, encode_outcome
from millstream.storage.compaction.worker import work
from millstream.testing.disk import SimulatedDisk
from millstream.testing.simulator.loop import Process, SimulatedLoop
from millstream.testing.simulator.split_jobs import SplitJob, before_change
from millstream.testing.simulator.threads import SimulatedWorkers

_EPOCH_MS = 1_700_000_000_000


class SimulatedClock:
    """`offset_ms` makes the wall clock jump; `monotonic` does not change."""

    __slots__ = ("_loop", "elapsed", "monotonic", "offset_ms")

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.monotonic = self.elapsed = loop.time
        self.offset_ms = 0

    def now_ms(self) -> int:
        return _EPOCH_MS + int(self._loop.time() * 1000) + self.offset_ms


class Machine:
    """A `runtime.host.Host`. Its disk outlives its programs; `start` begins the next one."""

    def __init__(self, name: str, loop: SimulatedLoop, random: Random) -> None:
        self.name = name
        self.loop = loop
        self.random = random
        self.disk = SimulatedDisk(random.getrandbits(64), journaled=random.random() < 0.5)
        self.clock = SimulatedClock(loop)
        self.process = Process(name)
        self.disk_seconds = 0.0005
        """The typical duration of a job at the disk."""
        self.splits_jobs = False
        """Whether the threads' jobs run in pieces."""
        self.keeps_cache = False
        """Whether the page cache outlives a loss of power."""
        self._threads: list[SimulatedWorkers] = []

    @property
    def split_jobs(self) -> list[SplitJob]:
        """Jobs that are partly done."""
        return [job for threads in self._threads for job in threads.split]

    def end(self) -> None:
        """The run is over: stop all threads."""
        for threads in self._threads:
            threads.give_up(self.disk, self.random)

    def start(self) -> Process:
        self.process = Process(self.name)
        self._threads = []
        return self.process

    def crash(self, *, power_loss: bool) -> None:
        """End the program wherever it is; with `power_loss` the page cache is lost too."""
        self.process.is_alive = False
        for threads in self._threads:
            threads.crash(self.disk, self.random)
        self.disk.restart(power_loss=power_loss and not self.keeps_cache)
        self.loop.network.process_died(self.process, silently=power_loss)

    def _job_seconds(self) -> float:
        return self.disk_seconds * self.random.expovariate(1.0)

    # -- runtime.host.Host

    def workers(self, loop: asyncio.AbstractEventLoop, count: int, name: str) -> Workers:
        del name
        if self.splits_jobs:
            self.disk.before_change = before_change
        threads = SimulatedWorkers(loop, count, self._job_seconds, splits=self.splits_jobs)
        self._threads.append(threads)
        return threads

    def new_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def random_below(self, limit: int) -> int:
        return self.random.randrange(limit)

    async def start_process(self, command: Sequence[str]) -> Running:
        del command  # there is one program that a node starts
        return _CleaningProcess(self)


class _CleaningProcess:
    """Compaction, the only work that a node gives to another process, takes one simulated moment."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._is_killed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def communicate(self, data: bytes) -> Finished:
        asyncio.get_running_loop().call_later(self._machine.disk_seconds * 10, self._end, False)
        if await self._is_killed:
            return Finished(-9, b"", b"killed")
        return Finished(0, encode_outcome(work(self._machine.disk, decode_job(data))), b"")

    async def kill(self) -> None:
        self._end(True)

    def _end(self, is_killed: bool) -> None:
        if not self._is_killed.done():
            self._is_killed.set_result(is_killed)
