"""Moves of replicas while a leader that was replaced does not know it: one fault at a time, on virtual time."""

import asyncio
from typing import Any

import pytest

from millstream.cluster.metadata.image import PartitionImage
from millstream.cluster.metadata.leader_elections import ElectionType, ElectLeaders
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment
from millstream.cluster.metadata.topics import CreateTopics, NewTopic
from millstream.cluster.replication import LeaderState
from millstream.testing.simulator.node import SimulatedNode
from support.simulated_story import Story, may_answer


async def told_to(controller: SimulatedNode, command: Any) -> None:
    assert controller.broker is not None
    work = controller.broker.metadata.submit(command)
    await controller.machine.loop.create_task(work, context=controller.process.context)


def seen_by(node: SimulatedNode) -> PartitionImage:
    assert node.broker is not None
    return node.broker.metadata.image.topics["t"].partitions[0]


async def replaced_and_moved_away_within_a_pause(story: Story) -> tuple[SimulatedNode, SimulatedNode]:
    """The controller, and the one that led: it is back while its lease still holds, and has heard of nothing."""
    controller = story.controller()
    old, other = story.others(controller)
    staying = (controller.node_id, other.node_id)
    await told_to(controller, CreateTopics((NewTopic("t", assignments=((0, (old.node_id, *staying)),)),)))
    await story.until(lambda: len(seen_by(controller).isr) == 3)
    old.process.is_paused = True
    await told_to(controller, AlterReassignments((Reassignment("t", 0, (*staying, old.node_id)),)))
    await told_to(controller, ElectLeaders(ElectionType.PREFERRED, (("t", 0),)))
    await told_to(controller, AlterReassignments((Reassignment("t", 0, staying),)))
    await asyncio.sleep(0.5)
    assert may_answer(old)
    return controller, old


def test_a_move_waits_until_the_leader_that_was_replaced_knows_it() -> None:
    async def told(story: Story) -> None:
        controller, old = await replaced_and_moved_away_within_a_pause(story)
        p = seen_by(controller)
        assert (p.leader, p.removing) == (controller.node_id, (old.node_id,))
        assert old.node_id in p.isr, "nothing is committed without it while it may answer as the leader"
        story.loop.resume(old.process)
        await story.until(lambda: not seen_by(controller).removing)
        assert len(seen_by(controller).isr) == 2

    Story().run(told)


def test_with_that_rule_broken_others_commit_while_it_may_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderState, "may_end_move", True)

    async def told(story: Story) -> None:
        controller, old = await replaced_and_moved_away_within_a_pause(story)
        assert old.node_id not in seen_by(controller).isr

    Story().run(told)
