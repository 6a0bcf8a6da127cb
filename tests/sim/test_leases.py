"""When a node of three may answer from what it knows: one fault at a time, on virtual time."""

import asyncio

from millstream.broker.http import NodeHealth
from millstream.broker.partitions.registry import CutOff
from millstream.http.node_routes import HealthStatus
from millstream.testing.simulator.node import SimulatedNode
from support.simulated_story import LOOK_SECONDS, Story, may_answer


def test_a_node_that_is_cut_off_has_stopped_when_it_is_fenced() -> None:
    async def told(story: Story) -> None:
        old = story.others(story.controller())[0]
        other = story.others(old)[0]
        story.cut(old)
        await story.until(lambda: story.is_fenced(old, by=other))
        assert not may_answer(old)
        assert all(may_answer(node) for node in story.others(old))
        story.cluster.network.heal_all()
        await story.until(lambda: may_answer(old))
        assert not story.is_fenced(old, by=other)

    Story().run(told)


def health_of(node: SimulatedNode) -> tuple[bool, tuple[str, ...]]:
    """As its HTTP port tells it: 200 or 503, and the reasons."""
    broker = node.broker
    assert broker is not None
    health = NodeHealth(
        node.node_id,
        broker.machine.clock,
        broker.metrics,
        broker.partitions,
        broker.logs.writability,
        lambda: broker.metadata,
        lambda: broker.waiting_for,
        lambda: broker.replicas.faults,
        lambda: 0,
        (),
    )()
    return health.status is HealthStatus.OK, tuple(health.reasons)


def test_a_node_that_is_fenced_is_unwell_until_it_is_let_in_again() -> None:
    async def told(story: Story) -> None:
        old = story.others(story.controller())[0]
        other = story.others(old)[0]
        assert health_of(old) == (True, ())
        old.process.is_paused = True
        await story.until(lambda: story.is_fenced(old, by=other))
        story.loop.resume(old.process)
        said: set[str] = set()

        def is_well() -> bool:
            """Looked at more often than a message takes."""
            well, reasons = health_of(old)
            said.update(reasons)
            assert not (well and story.is_fenced(old, by=other))
            return well

        while not is_well():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS / 100)
        assert said

    Story().run(told)


def test_so_has_a_controller_when_its_successor_fences_it() -> None:
    async def told(story: Story) -> None:
        old = story.controller()
        other = story.others(old)[0]
        story.cut(old)
        await story.until(lambda: not may_answer(old))
        assert not story.is_fenced(old, by=other)
        await story.until(lambda: story.is_fenced(old, by=other))
        assert not may_answer(old)

    Story().run(told)


def test_after_a_pause_the_first_answer_is_none() -> None:
    async def told(story: Story) -> None:
        for node in (story.controller(), story.others(story.controller())[0]):
            await story.until(lambda: all(map(may_answer, story.nodes)))
            node.process.is_paused = True
            await asyncio.sleep(10.0)
            # Nothing of the program has run since, so nothing has told it that time went by.
            assert not may_answer(node)
            story.loop.resume(node.process)
            await story.until(lambda paused=node: may_answer(paused))  # type: ignore[misc]

    Story().run(told)


def test_the_death_of_a_controller_costs_no_other_node_its_lease() -> None:
    async def told(story: Story) -> None:
        old = story.controller()
        old.crash(power_loss=False)
        await story.always(lambda: all(map(may_answer, story.others(old))), 20.0)

    Story().run(told)


def test_the_last_one_alive_serves_on_and_not_after_a_pause() -> None:
    async def told(story: Story) -> None:
        last = story.controller()
        for node in story.others(last):
            node.crash(power_loss=False)
        await story.always(lambda: may_answer(last), 30.0)
        last.process.is_paused = True
        await asyncio.sleep(10.0)
        story.loop.resume(last.process)
        await story.always(lambda: not may_answer(last), 10.0)
        for node in story.others(last):
            node.start()
        await story.until(lambda: may_answer(last))

    Story().run(told)


def test_the_last_one_stops_where_the_others_fell_silent() -> None:
    """Without a majority and without a sign that the others ended, they may have gone on."""

    async def told(story: Story) -> None:
        left = story.controller()
        for node in story.others(left):
            node.crash(power_loss=True)
        await story.until(lambda: not may_answer(left))

    Story().run(told)


def test_a_full_node_stops_before_others_lead_and_comes_back() -> None:
    async def told(story: Story) -> None:
        full = story.controller()
        other = story.others(full)[0]
        disk = full.machine.disk
        broker = full.serving
        assert broker is not None
        disk.capacity_bytes = disk.used_bytes()
        full.process.context.run(broker.logs.writability.found_no_room)
        await story.until(lambda: story.is_fenced(full, by=other))
        assert broker.partitions.is_cut_off_by(CutOff.DISK)
        assert not may_answer(full)
        disk.capacity_bytes = None
        await story.until(lambda: may_answer(full))
        assert not story.is_fenced(full, by=other)

    Story().run(told)


def test_the_last_one_serves_on_though_it_is_full() -> None:
    async def told(story: Story) -> None:
        full = story.controller()
        broker = full.serving
        assert broker is not None
        disks = [node.machine.disk for node in story.nodes]
        for node, disk in zip(story.nodes, disks, strict=True):
            # Room for the quorum's log, and not for what shows that there is room.
            disk.capacity_bytes = disk.used_bytes() + 500_000
            assert node.serving is not None
            node.process.context.run(node.serving.logs.writability.found_no_room)
        await story.until(lambda: sum(map(may_answer, story.nodes)) == 1)
        await story.until(lambda: len(broker.metadata.image.live_brokers) == 1)
        (last,) = (node for node in story.nodes if may_answer(node))
        await story.always(lambda: may_answer(last), 10.0)
        for disk in disks:
            disk.capacity_bytes = None
        await story.until(lambda: all(map(may_answer, story.nodes)))

    Story().run(told)
