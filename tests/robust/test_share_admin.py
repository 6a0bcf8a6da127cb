"""Share groups as tools see them: groups, settings and offsets; and the requests between Kafka's brokers."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from millstream.client import QueueAdmin, QueueConsumer
from millstream.protocol.errors import ErrorCode
from support.node import NodeProcess
from support.raw_client import RawClient, batch_of, create_topic, produce
from support.raw_share_consumer import RawShareConsumer

GROUP_RESOURCE = 32
COUNT = 6
AVAILABLE, ACKNOWLEDGED = 0, 2


@pytest.fixture
def used(broker: NodeProcess, client: RawClient, topic: str) -> tuple[str, str]:
    """A topic of six messages, and a group that has accepted the first and the third."""
    produce(client, topic, batch_of(*(b"%d" % number for number in range(COUNT))))
    with QueueConsumer(topic, f"{topic}-g", broker.bootstrap) as queue:
        messages = queue.receive(COUNT, 60)
        assert len(messages) == COUNT
        queue.accept(messages[0])
        queue.accept(messages[2])
    return topic, f"{topic}-g"


def offsets(client: RawClient, group: str, topic: str) -> Any:
    wanted = {"group_id": group, "topics": [{"topic_name": topic, "partitions": [0]}]}
    [found] = client.call("describe_share_group_offsets", 1, groups=[wanted]).groups
    return found


def place(client: RawClient, group: str, topic: str) -> tuple[int, int]:
    """Where the group's queue begins, and how many messages are left in it."""
    [told] = offsets(client, group, topic).topics[0].partitions
    return told.start_offset, told.lag


def beat(client: RawClient, group: str, topic: str | None, epoch: int, member: str = "m") -> Any:
    return client.call(
        "share_group_heartbeat",
        1,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=None if topic is None else [topic],
    )


def test_offsets_are_described_moved_and_forgotten(client: RawClient, used: tuple[str, str]) -> None:
    topic, group = used

    def alter(start: int) -> Any:
        parts = [{"partition_index": 0, "start_offset": start}]
        return client.call(
            "alter_share_group_offsets",
            0,
            group_id=group,
            topics=[{"topic_name": topic, "partitions": parts}],
        )

    def delete() -> Any:
        return client.call("delete_share_group_offsets", 0, group_id=group, topics=[{"topic_name": topic}])

    # The first is settled, and another behind it.
    assert place(client, group, topic) == (1, COUNT - 2)
    joined = beat(client, group, topic, 0)
    assert alter(0).error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete().error_code == ErrorCode.NON_EMPTY_GROUP
    assert beat(client, group, None, -1).error_code == ErrorCode.NONE
    assert joined.assignment is not None
    assert alter(4).responses[0].partitions[0].error_code == ErrorCode.NONE
    assert place(client, group, topic) == (4, COUNT - 4)
    assert delete().responses[0].error_code == ErrorCode.NONE
    assert offsets(client, group, topic).topics[0].partitions[0].start_offset == -1


def test_a_group_that_was_forgotten_and_set_back_gets_everything_again(
    broker: NodeProcess, client: RawClient, used: tuple[str, str]
) -> None:
    topic, group = used
    client.call("delete_share_group_offsets", 0, group_id=group, topics=[{"topic_name": topic}])
    parts = [{"partition_index": 0, "start_offset": 0}]
    client.call(
        "alter_share_group_offsets", 0, group_id=group, topics=[{"topic_name": topic, "partitions": parts}]
    )
    taken = []
    with QueueConsumer(topic, group, broker.bootstrap) as queue:
        while len(taken) < COUNT:
            messages = queue.receive(COUNT, 10)
            assert messages, f"no more than {taken}"
            taken += [message.offset for message in messages]
            queue.accept(*messages)
    assert taken == list(range(COUNT))


@pytest.mark.parametrize("forgets", [False, True])
def test_a_group_that_has_settled_everything_and_is_set_back_gets_everything_again(
    broker: NodeProcess, client: RawClient, topic: str, forgets: bool
) -> None:
    """The leader had nothing to hand out and nothing to store, so it never heard of it."""
    group = f"{topic}-g"
    produce(client, topic, batch_of(b"a", b"b"))
    parts = [{"partition_index": 0, "start_offset": 0}]
    for _ in range(2):
        with QueueConsumer(topic, group, broker.bootstrap) as queue:
            taken: list[bytes | None] = []
            while len(taken) < 2 and (messages := queue.receive(2, 60)):
                taken += [each.value for each in messages]
                queue.accept(*messages)
            assert taken == [b"a", b"b"]
        if forgets:
            client.call("delete_share_group_offsets", 0, group_id=group, topics=[{"topic_name": topic}])
        else:
            client.call(
                "alter_share_group_offsets",
                0,
                group_id=group,
                topics=[{"topic_name": topic, "partitions": parts}],
            )


def test_altering_the_offsets_of_an_unknown_group_makes_it(
    broker: NodeProcess, client: RawClient, topic: str
) -> None:
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    parts = [{"partition_index": 0, "start_offset": 2}]
    group = f"{topic}-new"
    told = client.call(
        "alter_share_group_offsets", 0, group_id=group, topics=[{"topic_name": topic, "partitions": parts}]
    )
    assert told.responses[0].partitions[0].error_code == ErrorCode.NONE
    with QueueConsumer(topic, group, broker.bootstrap) as queue:
        assert [each.value for each in queue.receive(3, 60)] == [b"c"]


def test_groups_are_listed_described_and_deleted(client: RawClient, used: tuple[str, str]) -> None:
    topic, group = used

    def listed() -> set[tuple[str, str, str]]:
        reply = client.call("list_groups", 5, states_filter=[], types_filter=["Share"])
        return {(each.group_id, each.group_type, each.group_state) for each in reply.groups}

    def described() -> Any:
        return client.call(
            "share_group_describe", 1, group_ids=[group], include_authorized_operations=False
        ).groups[0]

    assert (group, "share", "Empty") in {(name, kind.lower(), state) for name, kind, state in listed()}
    beat(client, group, topic, 0)
    found = described()
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    [member] = found.members
    assert (member.member_id, tuple(member.subscribed_topic_names)) == ("m", (topic,))
    assert tuple(member.assignment.topic_partitions[0].partitions) == (0,)
    delete = {"groups_names": [group]}
    assert client.call("delete_groups", 2, **delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    beat(client, group, None, -1)
    assert client.call("delete_groups", 2, **delete).results[0].error_code == ErrorCode.NONE
    assert group not in {name for name, _, _ in listed()}
    assert described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_settings_of_a_group_are_described_with_where_they_come_from(
    broker: NodeProcess, client: RawClient, topic: str
) -> None:
    group = f"{topic}-g"
    with QueueAdmin(broker.bootstrap) as admin:
        admin.alter_group_configs(group, {"share.record.lock.duration.ms": "20000"})
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}
    [found] = client.call("describe_configs", 4, resources=[resource]).results
    values = {each.name: each.value for each in found.configs}
    assert values["share.record.lock.duration.ms"] == "20000"
    assert values["share.delivery.count.limit"] == "5"
    assert values["share.session.timeout.ms"] == "45000"
    assert values["share.auto.offset.reset"] == "latest"
    sources = {each.name: each.config_source for each in found.configs}
    assert sources["share.record.lock.duration.ms"] != sources["share.delivery.count.limit"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.session.timeout.ms", "44999"),
        ("share.heartbeat.interval.ms", "15001"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "99"),
        ("share.auto.offset.reset", "sometime"),
        ("share.isolation.level", "read_all"),
        ("queue.retry.backoff.multiplier", "0.5"),
        ("queue.retry.backoff.ms", "-1"),
        ("share.unknown", "1"),
    ],
)
def test_settings_out_of_bounds_are_refused(client: RawClient, topic: str, name: str, value: str) -> None:
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": f"{topic}-g", "configs": [change]}
    reply = client.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    assert reply.responses[0].error_code == ErrorCode.INVALID_CONFIG


def test_state_between_brokers(client: RawClient, topic: str) -> None:
    topic_id, group = uuid.uuid4(), f"{topic}-state"

    def ask(what: str, version: int, **fields: Any) -> Any:
        topics = [{"topic_id": topic_id, "partitions": [{"partition": 0, **fields}]}]
        return client.call(f"{what}_share_group_state", version, group_id=group, topics=topics)

    def result(reply: Any) -> Any:
        return reply.results[0].partitions[0]

    def write(
        state_epoch: int, leader_epoch: int, *batches: tuple[int, int, int, int], start: int = -1
    ) -> int:
        named = [
            {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
            for first, last, state, count in batches
        ]
        reply = ask(
            "write",
            1,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=1,
            state_batches=named,
        )
        return int(result(reply).error_code)

    assert result(ask("initialize", 0, state_epoch=2, start_offset=10)).error_code == ErrorCode.NONE
    assert write(2, 5, (10, 19, AVAILABLE, 1), (12, 12, ACKNOWLEDGED, 1)) == ErrorCode.NONE
    assert write(2, 4) == ErrorCode.FENCED_LEADER_EPOCH
    assert write(1, 5) == ErrorCode.FENCED_STATE_EPOCH
    assert write(2, 5, (5, 3, AVAILABLE, 1)) == ErrorCode.INVALID_REQUEST
    assert write(2, 5, (10, 10, 9, 1)) == ErrorCode.INVALID_REQUEST
    read = result(ask("read", 0, leader_epoch=5))
    assert (read.error_code, read.state_epoch, read.start_offset) == (0, 2, 10)
    assert [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in read.state_batches
    ] == [(10, 11, AVAILABLE, 1), (12, 12, ACKNOWLEDGED, 1), (13, 19, AVAILABLE, 1)]
    topics = [{"topic_id": topic_id, "partitions": [{"partition": 0, "leader_epoch": 5}]}]
    reply = client.call("read_share_group_state_summary", 1, group_id=group, topics=topics)
    told = result(reply)
    assert (told.error_code, told.state_epoch, told.start_offset, told.delivery_complete_count) == (
        0,
        2,
        10,
        1,
    )
    assert result(ask("delete", 0)).error_code == ErrorCode.NONE
    assert result(ask("read", 0, leader_epoch=5)).start_offset == -1


@pytest.fixture
def sessions(broker: NodeProcess, client: RawClient, topic: str) -> Iterator[Callable[[], RawShareConsumer]]:
    """Of a group that begins with the first message of the topic, which has two batches of four."""
    group = f"{topic}-g"
    for first in (0, 4):
        produce(client, topic, batch_of(*(b"%d" % number for number in range(first, first + 4))))
    with QueueAdmin(broker.bootstrap) as admin, ExitStack() as made:
        admin.alter_group_configs(group, {"share.auto.offset.reset": "earliest"})
        topic_id = admin.topic_id(topic)

        def make() -> RawShareConsumer:
            consumer = RawShareConsumer(broker.bootstrap, group, topic_id)
            made.callback(consumer.client.close)
            return consumer

        yield make


@pytest.mark.parametrize("routing", ["direct", "proxy"])
@pytest.mark.parametrize(("mode", "wanted", "expected"), [(0, 3, 2), (1, 3, 2), (0, 6, 3), (1, 6, 5)])
def test_both_ways_to_acquire(
    sessions: Callable[[], RawShareConsumer],
    client: RawClient,
    topic: str,
    mode: int,
    wanted: int,
    expected: int,
    routing: str,
) -> None:
    """Whole batches, unless one alone has more records than are wanted; or exactly as many as are wanted."""
    change = {"name": "client.routing", "config_operation": 0, "value": routing}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    [changed] = client.call("incremental_alter_configs", 1, resources=[resource]).responses
    assert changed.error_code == ErrorCode.NONE
    taken: list[tuple[int, int]] = []
    consumer = sessions()
    while not taken:
        reply = consumer.fetch(records=wanted, share_acquire_mode=mode)
        taken = [
            (each.first_offset, each.last_offset)
            for told in reply.responses
            for partition in told.partitions
            for each in partition.acquired_records
        ]
    assert (taken[0][0], taken[-1][1]) == (0, expected)


def test_an_unknown_way_to_acquire_is_refused(sessions: Callable[[], RawShareConsumer]) -> None:
    assert sessions().fetch(share_acquire_mode=2).error_code == ErrorCode.INVALID_REQUEST


def test_sessions_are_bounded(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node(settings={"kafka.group.share.max.share.sessions": "1"})
    with RawClient(node.bootstrap) as client:
        create_topic(client, "jobs")
    with QueueAdmin(node.bootstrap) as admin:
        topic_id = admin.topic_id("jobs")
    first, second = (RawShareConsumer(node.bootstrap, "g", topic_id) for _ in range(2))
    assert first.fetch().error_code == ErrorCode.NONE
    assert second.fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert first.fetch(epoch=-1).error_code == ErrorCode.NONE
    assert second.fetch().error_code == ErrorCode.NONE
    first.client.close()
    second.client.close()
