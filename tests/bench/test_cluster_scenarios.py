"""The scenarios on three nodes account for what they count; nothing here looks at a time."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.acked_writer import AckedWriter, Acknowledged, longest_gap, lost_and_twice
from bench.metadata_view import PartitionState, look
from bench.peers import Durability
from bench.peers.millstream import Millstream

REPOSITORY = Path(__file__).resolve().parents[2]


def _acknowledged(*times: tuple[float, float]) -> list[Acknowledged]:
    return [Acknowledged(number, sent_at, at) for number, (sent_at, at) in enumerate(times)]


def test_a_gap_ends_with_a_message_that_was_sent_after_the_kill() -> None:
    acknowledged = _acknowledged((0.0, 0.5), (0.9, 1.0), (0.95, 1.25), (1.5, 2.0), (3.0, 9.0))

    assert longest_gap(acknowledged, since=1.1) == pytest.approx(0.75)


def test_what_is_lost_stored_twice_or_out_of_order_is_counted() -> None:
    acknowledged = [_acknowledged((0, 0), (0, 0), (0, 0)), _acknowledged((0, 0))]

    assert lost_and_twice(acknowledged, [[0, 1, 2], [0]]) == (0, 0)
    assert lost_and_twice(acknowledged, [[0, 2, 2], [5, 0]]) == (1, 2)


def test_what_a_node_tells_of_the_cluster_and_what_a_writer_wrote_is_read(tmp_path: Path) -> None:
    broker = Millstream(tmp_path)
    try:
        broker.wait_ready()
        broker.create_topic("seen", 2, Durability.RELAXED)
        state = look(broker.bootstrap, ["seen", "unknown"])
        (me,) = state.brokers
        assert state.controller == me
        assert state.topics == {"seen": {index: PartitionState(me, (me,), (me,)) for index in range(2)}}
        assert look(broker.bootstrap).topics == state.topics

        with AckedWriter(broker.bootstrap, "seen", 2, rate=200) as writer:
            for partition in range(2):
                writer.gap(partition, time.perf_counter())
        assert not writer.errors
        assert all(writer.acknowledged)
        assert lost_and_twice(writer.acknowledged, writer.stored()) == (0, 0)
    finally:
        broker.stop()


@pytest.mark.long
def test_scenarios_on_three_nodes_are_measured_and_judged(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench", "cluster", "failover", "catch-up", "metadata", "--quick"]
    command += ["--rounds", "1", "--peer", "millstream", "--data", str(tmp_path), "--json", str(report)]

    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(report.read_bytes())
    assert {cell["scenario"] for cell in written["loads"]} == {"cluster"}
    figures = {cell["name"]: cell["values"] for cell in written["figures"]}
    assert figures["failover: acknowledged messages lost"] == [0]
    assert figures["failover: messages stored twice"] == [0]
    assert all(value > 0 for name, (value,) in figures.items() if not name.startswith("failover: "))
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
