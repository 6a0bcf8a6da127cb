"""Refusals of many elements at once are freed when the answer is, and not by a full collection of garbage.

An error keeps the frames that it was raised in, and they keep the other outcomes. Ten thousand refused topics left
270,000 objects in circles; the collector looked through them in one go, for 180 ms, while everybody waited.
"""

import gc
import uuid

import pytest

from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.configs import AlterConfigs, ConfigAlteration
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.partitions import CreatePartitions, PartitionIncrease
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment
from millstream.cluster.metadata.topics import CreateTopics, DeleteTopics, NewTopic, TopicRef

MANY = range(50)
REFUSED: list[Command] = [
    AlterConfigs(tuple(ConfigAlteration(77, f"r{n}", ()) for n in MANY)),
    CreatePartitions(tuple(PartitionIncrease(f"t{n}", 9) for n in MANY)),
    CreateTopics(tuple(NewTopic(f"bad name {n}") for n in MANY)),
    DeleteTopics(tuple(TopicRef(f"t{n}") for n in MANY)),
    AlterReassignments(tuple(Reassignment("t", n, (1,)) for n in MANY)),
]


@pytest.mark.parametrize("command", REFUSED, ids=lambda command: type(command).__name__)
def test_refusals_are_freed_without_the_collector(command: Command) -> None:
    gc.collect()
    gc.disable()
    try:
        decided = command.decide(MetadataImage(), uuid.uuid4)
        assert all(outcome.error is not None for outcome in decided.result)
        del decided
        assert gc.collect() < len(MANY)
    finally:
        gc.enable()
