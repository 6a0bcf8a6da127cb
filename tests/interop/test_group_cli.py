"""`millstream group` and the lag on /metrics, over groups of real consumers."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.cli import Cli
from support.metrics import metric
from support.node import NodeProcess
from support.topics import create_topic
from support.waiting import wait_for

FIRST_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def cli(broker: NodeProcess) -> Cli:
    return Cli(broker.bootstrap)


def filled_topic(broker: NodeProcess, admin: AdminClient, name: str) -> str:
    """Two partitions of ten messages each, an hour apart."""
    create_topic(admin, name, 2, {"retention.ms": -1, "message.timestamp.before.max.ms": 2**63 - 1})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(2):
        for number in range(10):
            producer.produce(name, b"m", partition=partition, timestamp=FIRST_MS + number * HOUR_MS)
    assert producer.flush(90) == 0
    return name


@pytest.fixture
def topic(broker: NodeProcess, admin: AdminClient, new_topic: Callable[[], str]) -> str:
    return filled_topic(broker, admin, new_topic())


def commit(broker: NodeProcess, group: str, topic: str, *offsets: int) -> None:
    """As a consumer without partitions of its own does."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@pytest.fixture
def group(broker: NodeProcess, topic: str) -> str:
    """Committed at 3 and 7, no members."""
    commit(broker, f"group-{topic}", topic, 3, 7)
    return f"group-{topic}"


class Live(NamedTuple):
    topic: str
    group: str


@pytest.fixture(scope="module", params=["classic", "consumer"])
def live(broker: NodeProcess, admin: AdminClient, request: pytest.FixtureRequest) -> Iterator[Live]:
    """Committed at 3 and 7, with one member that owns both partitions."""
    topic = filled_topic(broker, admin, f"live-{request.param}-{os.getpid()}")
    group = f"group-{topic}"
    commit(broker, group, topic, 3, 7)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": request.param,
            "client.id": "reader",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    wait_for(lambda: (consumer.poll(0.1), consumer.assignment())[1], lambda owned: len(owned) == 2, "join")
    yield Live(topic, group)
    consumer.close()


def row_of(cli: Cli, group: str) -> dict[str, object]:
    return next(row for row in cli.json("group", "list") if row["group"] == group)


def offsets(admin: AdminClient, group: str) -> list[int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(90).topic_partitions
    return [place.offset for place in sorted(found, key=lambda place: int(place.partition))]


def test_a_group_without_members_is_listed_with_its_lag(cli: Cli, group: str) -> None:
    assert row_of(cli, group) == {
        "group": group,
        "state": "Empty",
        "type": "classic",
        "protocol": "",
        "members": 0,
        "lag": 10,
        "partitions_with_unknown_lag": 0,
    }


def test_members_and_positions_are_described(cli: Cli, live: Live) -> None:
    topic, group = live
    row = row_of(cli, group)
    assert (row["state"], row["members"], row["lag"]) == ("Stable", 1, 10)
    described = cli.json("group", "describe", group)
    assert described["type"] == row["type"]
    (only,) = described["members"]
    assert (only["client_id"], only["host"], only["instance_id"]) == ("reader", "127.0.0.1", None)
    assert only["assignment"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert [
        (p["committed_offset"], p["end_offset"], p["lag"], p["member_id"]) for p in described["partitions"]
    ] == [(3, 10, 7, only["member_id"]), (7, 10, 3, only["member_id"])]
    lines = cli.ok("group", "describe", group).decode().splitlines()
    assert "lag\t10" in lines
    assert f"{topic}\t1\t7\t10\t3\treader" in lines


def test_a_group_in_use_is_neither_reset_nor_deleted(cli: Cli, admin: AdminClient, live: Live) -> None:
    topic, group = live
    error = cli.fails("group", "reset-offsets", group, "--topic", topic, "--to-earliest")
    assert f"group {group!r} has 1 active member (Stable); stop them first" in error
    assert "has active members; stop them first" in cli.fails("group", "delete", group)
    assert offsets(admin, group) == [3, 7]


def test_lag_is_a_metric(broker: NodeProcess, group: str, topic: str, live: Live) -> None:
    place = {"group": group, "topic": topic, "partition": "0"}
    assert metric(broker, "millstream_group_offset", **place) == 3
    assert metric(broker, "millstream_group_lag", **place) == 7
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"one more", partition=0)
    assert producer.flush(90) == 0
    assert metric(broker, "millstream_group_lag", **place) == 8
    assert metric(broker, "millstream_group_members", group=live.group, state="Stable") == 1


def iso(offset: int) -> str:
    return datetime.fromtimestamp((FIRST_MS + offset * HOUR_MS) / 1000, UTC).isoformat()


def test_a_group_is_moved_to_every_kind_of_target(
    broker: NodeProcess, cli: Cli, admin: AdminClient, group: str, topic: str
) -> None:
    for target, expected in {
        ("--to-earliest",): [0, 0],
        ("--to-latest",): [10, 10],
        ("--to-offset", "5"): [5, 5],
        ("--to-offset", "500"): [10, 10],
        ("--to-datetime", iso(4)): [4, 4],
        ("--to-datetime", iso(400)): [10, 10],
        ("--by-duration", "10000w"): [0, 0],
        ("--shift-by", "-4"): [0, 3],
    }.items():
        commit(broker, group, topic, 3, 7)
        shown = cli.json("group", "reset-offsets", group, "--all-topics", *target)
        moved = [(p["old_offset"], p["new_offset"]) for p in shown["partitions"]]
        assert moved == list(zip([3, 7], expected, strict=True)), target
        assert offsets(admin, group) == expected


def test_a_dry_run_shows_and_changes_nothing(cli: Cli, admin: AdminClient, group: str, topic: str) -> None:
    shown = cli.json("group", "reset-offsets", group, "--topic", f"{topic}:1", "--to-earliest", "--dry-run")
    assert shown == {
        "group": group,
        "dry_run": True,
        "partitions": [{"topic": topic, "partition": 1, "old_offset": 7, "new_offset": 0, "lag": 10}],
    }
    lines = cli.ok("group", "reset-offsets", group, "-t", topic, "--to-latest", "--dry-run").decode()
    assert lines.splitlines()[1:] == [f"{topic}\t0\t3\t10\t0", f"{topic}\t1\t7\t10\t0"]
    assert offsets(admin, group) == [3, 7]


def test_only_the_named_partitions_move(cli: Cli, admin: AdminClient, group: str, topic: str) -> None:
    cli.ok("group", "reset-offsets", group, "--topic", f"{topic}:1", "--to-offset", "1")
    assert offsets(admin, group) == [3, 1]


def test_a_group_can_be_given_a_position_before_its_first_member(
    cli: Cli, admin: AdminClient, topic: str
) -> None:
    cli.ok("group", "reset-offsets", f"new-{topic}", "--topic", topic, "--to-latest")
    assert offsets(admin, f"new-{topic}") == [10, 10]


def test_what_cannot_be_reset_is_named(cli: Cli, topic: str) -> None:
    for arguments, message in {
        ("-t", "no-such-topic", "--to-latest"): "there is no topic 'no-such-topic'",
        ("--all-topics", "--to-latest"): "has committed nothing; name the topics",
        ("-t", f"{topic}:7", "--to-latest"): "has no partition 7; it has partitions 0 to 1",
        ("-t", topic, "--shift-by", "1"): "nothing to shift",
    }.items():
        assert message in cli.fails("group", "reset-offsets", "nobody", *arguments)


@pytest.mark.parametrize(
    "arguments", [["--to-latest"], ["--all-topics"], ["--all-topics", "-t", "x", "--to-latest"]]
)
def test_wrong_usage_ends_with_2(cli: Cli, arguments: list[str]) -> None:
    assert cli.run("group", "reset-offsets", "g", *arguments).returncode == 2


def test_on_a_terminal_a_reset_asks_and_no_is_respected(
    cli: Cli, admin: AdminClient, group: str, topic: str
) -> None:
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "millstream",
        "group",
        "reset-offsets",
        group,
        "-t",
        topic,
        "--to-latest",
    ]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=cli.environment
    )
    os.write(ours, b"n\n")
    _, error = process.communicate(timeout=180)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1
    assert b"Move group" in error
    assert offsets(admin, group) == [3, 7]


def test_deleted_groups_are_gone_and_unknown_ones_are_named(cli: Cli, group: str, topic: str) -> None:
    result = cli.run("group", "delete", group, "no-such-group", "--json")
    assert result.returncode == 1
    assert b"there is no group 'no-such-group'" in result.stderr
    assert result.stdout == b'{"deleted":["%s"],"failed":["no-such-group"]}\n' % group.encode()
    assert group not in {row["group"] for row in cli.json("group", "list")}
    assert "there is no group" in cli.fails("group", "describe", group)
