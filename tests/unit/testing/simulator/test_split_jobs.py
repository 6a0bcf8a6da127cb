import asyncio
from collections.abc import Callable
from contextvars import copy_context
from random import Random

import pytest

from millstream.runtime.workers import Mutex
from millstream.testing.disk import SimulatedDisk
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.split_jobs import SplitJob, before_change, taking_turns
from millstream.testing.simulator.threads import SimulatedWorkers


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dirs("/data/a")
    disk.before_change = before_change
    return disk


def writes(disk: SimulatedDisk) -> Callable[[], None]:
    return lambda: disk.write_atomically("/data/a/file", b"x")


def test_others_come_between_two_changes_of_the_disk(disk: SimulatedDisk) -> None:
    job = SplitJob(writes(disk), copy_context())
    assert not job.go_on()
    assert not job.go_on()
    assert disk.list_dir("/data/a") == ["file.tmp"]
    disk.rename("/data/a", "/data/b")
    job.hurry()
    assert isinstance(job.error, FileNotFoundError)


def test_a_mutex_that_is_held_lets_its_holder_go_on(disk: SimulatedDisk) -> None:
    mutex = Mutex()

    def work() -> None:
        with mutex:
            disk.write_atomically("/data/a/file", b"x")

    job = SplitJob(work, copy_context())
    assert not job.go_on()
    with taking_turns(lambda: [job]), mutex:
        assert job.is_over
    assert disk.list_dir("/data/a") == ["file"]


def test_workers_report_what_was_done_in_pieces(disk: SimulatedDisk) -> None:
    loop = SimulatedLoop()
    workers = SimulatedWorkers(loop, 1, lambda: 0.01, splits=True)

    async def main() -> bytes:
        await workers.run(writes(disk))
        return disk.read("/data/a/file")

    assert loop.run(main()) == b"x"
    assert workers.split == []
    # Each change of the disk had a moment of its own.
    assert loop.time() > 0.03


def test_a_crash_finds_a_job_half_done_and_leaves_no_thread(disk: SimulatedDisk) -> None:
    loop = SimulatedLoop()
    workers = SimulatedWorkers(loop, 1, lambda: 1.0, splits=True)
    told: list[object] = []
    workers.submit(writes(disk), lambda *result: told.append(result))

    async def main() -> None:
        loop.call_later(2.5, workers.crash, disk, Random(1))
        await asyncio.sleep(3.0)

    loop.run(main())
    assert workers.split == []
    assert told == []


def test_the_end_of_a_program_joins_its_threads(disk: SimulatedDisk) -> None:
    loop = SimulatedLoop()
    workers = SimulatedWorkers(loop, 1, lambda: 1.0, splits=True)
    told: list[tuple[object, BaseException | None]] = []
    workers.submit(writes(disk), lambda result, error: told.append((result, error)))

    async def main() -> None:
        loop.call_later(1.5, workers.close)
        await asyncio.sleep(2.0)

    loop.run(main())
    assert told == [(None, None)]
    assert disk.read("/data/a/file") == b"x"
