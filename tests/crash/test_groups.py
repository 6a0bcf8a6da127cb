"""kill -9 of the node while groups commit and rebalance, again and again (CRASH_ROUNDS).

Acknowledged commits are never lost, members come back by themselves, and every rule for groups holds
throughout.
"""

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from support.members.feed import Feed
from support.members.judgement import (
    each_partition_had_one_owner_at_a_time,
    nothing_was_skipped_and_no_position_went_back,
)
from support.members.team import Team, wait
from support.node import NodeProcess
from support.topics import admin_for, create_topic

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
PARTITIONS = 4
SETTINGS = {
    "kafka.group.initial.rebalance.delay.ms": "100",
    "kafka.group.consumer.heartbeat.interval.ms": "300",
    "kafka.group.consumer.session.timeout.ms": "30000",
}
KINDS = ("librdkafka-cooperative", "KIP-848")


@pytest.fixture
def teams(start_node: Callable[..., NodeProcess]) -> Iterator[tuple[NodeProcess, list[Team]]]:
    node = start_node(settings=SETTINGS)
    create_topic(admin_for(node.bootstrap), "t", PARTITIONS)
    made = [Team(node.bootstrap, kind, "t", PARTITIONS, "--session-ms", "30000") for kind in KINDS]
    try:
        yield node, made
    finally:
        for team in made:
            team.abandon()


def committed(node: NodeProcess, group: str) -> dict[int, int]:
    admin = admin_for(node.bootstrap)
    places = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    asked = [ConsumerGroupTopicPartitions(group, places)]
    found = admin.list_consumer_group_offsets(asked)[group].result(90).topic_partitions
    return {place.partition: place.offset for place in found}


@pytest.mark.timeout(900 + 60 * ROUNDS)
def test_groups_survive_a_node_that_is_killed_during_commits_and_rebalances(
    teams: tuple[NodeProcess, list[Team]],
) -> None:
    node, groups = teams
    chance = random.Random(ROUNDS)
    with Feed(node.bootstrap, "t", PARTITIONS) as feed:
        # One after the other: librdkafka may say that it has nothing just after it was given partitions, and then take
        # them; by KIP-848 a member that joins in this moment is given the same.
        for _ in range(2):
            for team in groups:
                team.add(team.group)
            for team in groups:
                team.wait_until_shared()
        for number in range(ROUNDS):
            if number % 2:
                # Somebody comes or goes, and the node dies somewhere on the way.
                for team in groups:
                    if len(team.present) > 2:
                        team.present.pop(0).leave()
                    else:
                        team.add(team.group)
                time.sleep(chance.uniform(0, 0.9))
            else:
                team = chance.choice(groups)
                before = sum(team.read_to().values())
                wait(lambda team=team, before=before: sum(team.read_to().values()) > before, team.describe)  # type: ignore[misc]
            node.crash_and_restart()
            for team in groups:
                team.wait_until_shared()
                team.wait_until_read(lambda: dict(feed.ends))
        ends = feed.finish()
    for team in groups:
        team.wait_until_read(lambda: ends)
        team.close()
        each_partition_had_one_owner_at_a_time(team.members)
        acknowledged = nothing_was_skipped_and_no_position_went_back(team.members)
        stored = committed(node, team.group)
        assert all(stored[partition] >= offset for partition, offset in acknowledged.items())
        assert stored == ends
