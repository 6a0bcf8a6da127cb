"""How a node takes up its partitions when it starts."""

from dataclasses import replace
from typing import Any

import pytest

from millstream.broker.partitions import loading
from millstream.broker.partitions.topic_changes import TopicChanges
from millstream.config.settings import Settings
from millstream.runtime.clock import SystemClock
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, create_topic


def test_many_partitions_are_taken_up_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes up 100,000 in one turn of its loop is not heard by the others for two seconds."""
    disk, turns, served_in = SimulatedDisk(), [0], []
    with node_on(disk) as node, RawClient(node.listen) as client:
        create_topic(client, "t", partitions=40)
    disk.restart()
    serve = TopicChanges.serve

    def served(changes: TopicChanges, *spec: Any) -> None:
        served_in.append(turns[0])
        serve(changes, *spec)

    def turn() -> None:
        turns[0] += 1
        again.loop.call_soon(turn)

    monkeypatch.setattr(loading, "_AT_ONCE", 10)
    monkeypatch.setattr(TopicChanges, "serve", served)
    settings = Settings()
    broker = replace(settings.broker, host="127.0.0.1", port=0, data_dir="/data")
    again = InProcessNode(disk, replace(settings, broker=broker), SystemClock())
    again.loop.call_soon(turn)
    again.start()
    again.stop()
    assert len(served_in) == 40
    assert sorted(map(served_in.count, set(served_in))) == [10, 10, 10, 10]
