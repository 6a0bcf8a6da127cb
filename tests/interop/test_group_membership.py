"""Groups of member processes that join, leave, crash and come back, while messages keep coming.

Judged by what every member's own callbacks said: a partition has one owner at any time, nothing is skipped,
and positions do not go back.
"""

from collections.abc import Callable, Iterator

import pytest

from support.members.feed import Feed
from support.members.judgement import (
    each_partition_had_one_owner_at_a_time,
    nothing_was_skipped_and_no_position_went_back,
)
from support.members.team import Team, wait
from support.node import NodeProcess
from support.topics import admin_for, create_topic

PARTITIONS = 6
SETTINGS = {
    "kafka.group.initial.rebalance.delay.ms": "100",
    "kafka.group.consumer.heartbeat.interval.ms": "300",
    "kafka.group.consumer.session.timeout.ms": "15000",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("members"), settings=SETTINGS).start()
    try:
        yield node
        node.stop()
    finally:
        node.close()


@pytest.fixture
def new_team(node: NodeProcess, new_topic: Callable[[], str]) -> Iterator[Callable[..., Team]]:
    teams: list[Team] = []

    def make(*options: str) -> Team:
        topic = create_topic(admin_for(node.bootstrap), new_topic(), PARTITIONS)
        teams.append(Team(node.bootstrap, f"group-of-{topic}", topic, PARTITIONS, *options))
        return teams[-1]

    try:
        yield make
    finally:
        for team in teams:
            team.abandon()


@pytest.mark.parametrize(
    "kinds",
    [
        # The mixed group has one of each; alone, these are left to `make long`.
        pytest.param(("librdkafka",), marks=pytest.mark.long),
        pytest.param(("kafka-python",), marks=pytest.mark.long),
        pytest.param(("aiokafka",), marks=pytest.mark.long),
        ("librdkafka-cooperative",),
        ("KIP-848",),
        # A member of the new protocol joins a running group of the old one and turns it into its own kind.
        ("librdkafka", "kafka-python", "aiokafka", "KIP-848"),
    ],
    ids="+".join,
)
def test_members_join_crash_and_are_replaced_one_by_one(
    node: NodeProcess, new_team: Callable[..., Team], kinds: tuple[str, ...]
) -> None:
    team = new_team()
    with Feed(node.bootstrap, team.topic, PARTITIONS) as feed:
        for number in range(3):
            team.add(kinds[number % len(kinds)])
        team.wait_until_shared()
        joined = team.add(kinds[-1])
        team.wait_until_shared()
        team.kill(team.present[0])
        for former in [member for member in team.present if member is not joined]:
            team.add(former.kind)
            team.remove(former)
        team.wait_until_shared()
        ends = feed.finish()
    team.wait_until_read(lambda: ends)
    team.close()
    each_partition_had_one_owner_at_a_time(team.members)
    nothing_was_skipped_and_no_position_went_back(team.members)


@pytest.mark.parametrize(
    "kind",
    [
        "librdkafka",
        "KIP-848",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("kafka-python", "aiokafka")),
    ],
)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    node: NodeProcess, new_team: Callable[..., Team], kind: str
) -> None:
    team = new_team("--session-ms", "90000")
    with Feed(node.bootstrap, team.topic, PARTITIONS) as feed:
        stays = team.add(kind, "--instance", "stays")
        dies = team.add(kind, "--instance", "dies")
        team.wait_until_shared()
        # Those that do not know each other yet may hand partitions over once more.
        team.wait_until_read(lambda: dict(feed.ends))
        before, rebalances = dies.owned, stays.rebalances()
        # KIP-848 gives a place back only to one that said it would return; a killed one is first missed.
        (team.remove if kind == "KIP-848" else team.kill)(dies)
        back = team.add(kind, "--instance", "dies")
        wait(lambda: back.owned == before, team.describe)
        team.wait_until_read(lambda: dict(feed.ends))
        assert stays.rebalances() == rebalances
    team.close()
    each_partition_had_one_owner_at_a_time(team.members)
    nothing_was_skipped_and_no_position_went_back(team.members)
