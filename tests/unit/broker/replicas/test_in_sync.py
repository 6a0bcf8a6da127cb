"""Changes of in-sync sets are asked for, whatever went wrong with others."""

import asyncio
from types import SimpleNamespace
from typing import Any

from millstream.broker.machine import Tasks
from millstream.broker.replicas.in_sync import InSyncSets
from millstream.cluster.metadata.commands import CHANGED_AT_ONCE
from millstream.cluster.metadata.in_sync_sets import ChangeInSyncSets, InSyncResult
from millstream.cluster.replication import LeaderState
from millstream.protocol.errors import ErrorCode
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.machine import SimulatedClock

LAG_SECONDS = 4.0


class Led:
    """A partition whose follower was never heard of; its log fails so many times."""

    def __init__(self, index: int, failures: int = 0) -> None:
        self.topic, self.topic_id, self.index, self.is_leader = "t", bytes(16), index, True
        self.replication = LeaderState(1, 4, 0, 0, 0.0, replicas=(1, 2), isr=(1, 2), partition_epoch=0)
        self._failures = failures

    @property
    def log(self) -> Any:
        if self._failures:
            self._failures -= 1
            raise ZeroDivisionError
        return SimpleNamespace(log_end_offset=5, log_start_offset=0, config=SimpleNamespace(durable=True))

    def in_sync_set_changed(self) -> None:
        self.replication.isr = (1,)


class Controller:
    def __init__(self, failures: int = 0) -> None:
        self.broker_epoch = 7
        self.image = SimpleNamespace(brokers={})
        self.asked: list[int] = []
        self.most = 0
        self._failures = failures

    async def submit(self, command: ChangeInSyncSets) -> list[InSyncResult]:
        if self._failures:
            self._failures -= 1
            raise ZeroDivisionError
        self.most = max(self.most, len(command.changes))
        self.asked += [change.index for change in command.changes]
        return [InSyncResult(ErrorCode.NONE, 1, 4, (1,), 0) for _ in command.changes]


def shrunk(controller: Controller, *partitions: Led, within: float = 4.0) -> list[tuple[int, ...]]:
    loop = SimulatedLoop()

    async def story() -> None:
        machine: Any = SimpleNamespace(tasks=Tasks(loop), clock=SimulatedClock(loop))
        parts: Any = (machine, controller, partitions)
        in_sync = InSyncSets(1, *parts, LAG_SECONDS)
        in_sync.start()
        await asyncio.sleep(within * LAG_SECONDS)
        await machine.tasks.cancel_all()

    loop.run(story())
    return [each.replication.isr for each in partitions]


def test_one_that_cannot_be_proposed_keeps_no_other_from_it() -> None:
    controller = Controller()
    # Once in the look at all of them, and once when its change is proposed.
    assert shrunk(controller, Led(0, failures=2), Led(1)) == [(1,), (1,)]
    assert sorted(controller.asked) == [0, 1]


def test_what_could_not_be_asked_for_is_asked_for_again() -> None:
    controller = Controller(failures=1)
    assert shrunk(controller, Led(0)) == [(1,)]
    assert controller.asked == [0]


def test_very_many_are_changed_by_several_commands() -> None:
    """Each is applied in one turn of the loop, here and on all other nodes."""
    controller = Controller()
    count = 2 * CHANGED_AT_ONCE + 1
    assert shrunk(controller, *map(Led, range(count))) == [(1,)] * count
    assert sorted(controller.asked) == [*range(count)]
    assert controller.most == CHANGED_AT_ONCE


def test_nobody_is_taken_out_within_a_session_by_its_own_settings() -> None:
    """It may have led, and answers reads until its lease ends."""
    controller = Controller()
    controller.image.brokers[2] = SimpleNamespace(session_ms=int(3000 * LAG_SECONDS))
    assert shrunk(controller, Led(0), within=2.9) == [(1, 2)]
    assert shrunk(controller, Led(0), within=4.0) == [(1,)]
