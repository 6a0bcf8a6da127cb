"""kill -9 of a node under load, again and again (CRASH_ROUNDS): no acknowledged message is lost.

Segments are small and everything a node does in the background is done all the time: rolls, checkpoints, retention
and compaction are under way when the process ends.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.durability import judgement
from support.durability.witness import Witness, read_all
from support.durability.writer import Writer
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

# One after the other: each of them alone keeps a core busy.
pytestmark = pytest.mark.xdist_group("kill")

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "4"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
PARTITIONS = 3
SETTINGS = {
    "storage.checkpoint_interval": "150ms",
    "storage.retention_check_interval": "200ms",
    "storage.cleaner_interval": "300ms",
    "kafka.log.segment.delete.delay.ms": "100",
}
IDEMPOTENT = {"enable.idempotence": True}
PLAIN = {"enable.idempotence": False}
TOPICS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "durable": (PARTITIONS, {"segment.bytes": 100_000}, IDEMPOTENT),
    "plain": (PARTITIONS, {"segment.bytes": 60_000, "preallocate": "true"}, {**PLAIN, "acks": "1"}),
    "relaxed": (PARTITIONS, {"segment.bytes": 80_000, "flush.messages": 100_000}, IDEMPOTENT),
    "deleting": (2, {"segment.bytes": 30_000, "retention.bytes": 100_000}, IDEMPOTENT),
    "compacted": (
        1,
        {"segment.bytes": 30_000, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01},
        IDEMPOTENT,
    ),
}


@dataclass
class Load:
    node: NodeProcess
    writers: dict[str, Writer] = field(default_factory=dict)
    witness: Witness | None = None

    def begin(self) -> None:
        admin = admin_for(self.node.bootstrap)
        for topic, (partitions, configs, options) in TOPICS.items():
            create_topic(admin, topic, partitions, configs)
            keys = 7 if topic == "compacted" else 0
            self.writers[topic] = Writer(
                self.node.bootstrap, topic, partitions=partitions, keys=keys, options=options
            ).start()
        self.witness = Witness(self.node.bootstrap, {topic: count for topic, (count, _, _) in TOPICS.items()})

    def wait_for_progress(self, topic: str, messages: int) -> None:
        """Clients take a while to come back: a node that dies before they do is not under load."""
        acknowledged = self.writers[topic].ledger.acknowledged
        goal = len(acknowledged) + messages
        wait_for(lambda: len(acknowledged), lambda count: count >= goal, f"{topic} goes on")

    def judge(self) -> None:
        """Stop writing, read everything, and hold the node to what it said."""
        assert self.witness is not None
        for event in ("segments deleted", "log cleaned"):
            wait_for(
                lambda event=event: self.node.log_entries(event), bool, f"{event}: under this load it must"
            )
        ledgers = {topic: writer.finish() for topic, writer in self.writers.items()}
        self.witness.finish()
        assert self.witness.contradictions == []
        for topic, (partitions, _, _) in TOPICS.items():
            ledger = ledgers[topic]
            found, starts = read_all(self.node.bootstrap, topic, partitions)
            judgement.everything_sent_was_acknowledged(ledger)
            judgement.nothing_appears_that_was_not_sent(ledger, found)
            if topic == "compacted":
                judgement.each_key_ends_with_its_latest_value(ledger, found)
                continue
            judgement.offsets_have_no_gap(found, starts)
            judgement.acknowledged_values_are_where_they_were_said_to_be(ledger, found, starts)
            judgement.what_a_reader_saw_stays(self.witness.seen[topic], found, starts)
            if topic == "plain":
                judgement.every_value_is_there_and_first_copies_are_in_order(ledger, found)
            elif topic != "deleting":
                judgement.every_value_is_there_once_and_in_order(ledger, found, starts)
        self.check_log()

    def check_log(self) -> None:
        """Nothing was damaged, nothing failed."""
        for event in (
            "damage found",
            "storage error",
            "task failed",
            "corrupt record batch",
        ):
            assert self.node.log_entries(event) == []
        assert "Traceback" not in self.node.log_file.read_text()

    def abandon(self) -> None:
        for writer in self.writers.values():
            writer.abandon()


@pytest.fixture
def load(start_node: Callable[..., NodeProcess]) -> Iterator[Load]:
    load = Load(start_node(settings=SETTINGS))
    try:
        load.begin()
        yield load
    finally:
        load.abandon()


@pytest.mark.timeout(900 + 30 * ROUNDS)
def test_a_node_that_is_killed_again_and_again_keeps_every_acknowledged_message(load: Load) -> None:
    chance = random.Random(SEED)
    for _ in range(ROUNDS):
        load.wait_for_progress(chance.choice(list(TOPICS)), chance.randint(1, 500))
        load.node.kill()
        while chance.random() < 0.3:
            load.node.start_and_kill(after_s=chance.uniform(0.1, 0.9))
        load.node.start()
    load.judge()
    loaded = load.node.log_entries("logs loaded")
    assert all(not entry["clean"] for entry in loaded[1:])


def test_a_node_that_is_stopped_under_load_loses_nothing_and_scans_nothing_at_the_next_start(
    load: Load,
) -> None:
    for topic in TOPICS:
        load.wait_for_progress(topic, 300)
        load.node.restart()
    load.judge()
    loaded = load.node.log_entries("logs loaded")
    # The first of them is the start on an empty directory, which nothing was left in.
    assert [(entry["clean"], entry["scanned_bytes"]) for entry in loaded] == [(True, 0)] * (1 + len(TOPICS))
