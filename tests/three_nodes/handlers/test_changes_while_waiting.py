"""What the metadata says changes while a handler waits: each still answers, with a Kafka error where it must."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.broker.coordinators.hosted import Hosted
from millstream.broker.node import Node
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.upkeep import Upkeep
from millstream.cluster.metadata.topics import DeleteTopics, TopicRef
from millstream.coordinator.definition import partition_for
from millstream.coordinator.groups.coordinator import GroupCoordinator
from millstream.protocol.errors import ErrorCode
from support.interrupted import Interruption
from support.raw_client import RawClient, batch_of, fetch_fields, milliseconds, produce, produce_fields
from support.three_nodes import ThreeNodes, until

OFFSETS_TOPIC = "__consumer_offsets"
SOON = milliseconds(2_000)
COMMITTED = {"partition_index": 0, "committed_offset": 1}

Case = tuple[int, dict[str, Any]]


def cases(topic: str, group: str) -> dict[str, Case]:
    """Every request whose handler waits for something, of one topic and one group."""
    places = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    setting = {"name": "retention.ms", "value": "1000"}
    resource = {"resource_type": 2, "resource_name": topic}
    return {
        "metadata": (12, {"topics": [{"name": topic}]}),
        "metadata, created": (12, {"topics": [{"name": f"new-{topic}"}], "allow_auto_topic_creation": True}),
        "produce": (9, produce_fields(topic, batch_of(b"x"), acks=-1)),
        "fetch": (11, fetch_fields(topic, 3, max_wait_ms=500)),
        "list_offsets": (
            7,
            {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": 1}]}]},
        ),
        "delete_records": (
            2,
            {
                "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}],
                "timeout": SOON,
            },
        ),
        "create_topics": (
            7,
            {
                "topics": [{"name": f"made-{topic}", "num_partitions": 1, "replication_factor": 1}],
                "timeout": SOON,
            },
        ),
        "create_partitions": (3, {"topics": [{"name": topic, "count": 2}], "timeout": SOON}),
        "delete_topics": (6, {"topics": [{"name": f"none-{topic}"}], "timeout": SOON}),
        "alter_configs": (2, {"resources": [{**resource, "configs": [setting]}]}),
        "incremental_alter_configs": (1, {"resources": [{**resource, "configs": [setting]}]}),
        "elect_leaders": (2, {"topic_partitions": [{"topic": topic, "partitions": [0]}], "timeout": SOON}),
        "alter_partition_reassignments": (
            0,
            {
                "topics": [{"name": topic, "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}],
                "timeout": SOON,
            },
        ),
        "describe_quorum": (
            2,
            {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        ),
        "init_producer_id": (4, {"transactional_id": None, "transaction_timeout": SOON}),
        "find_coordinator": (4, {"key_type": 0, "coordinator_keys": [group]}),
        "join_group": (
            3,
            {
                "group_id": group,
                "session_timeout": milliseconds(10_000),
                "rebalance_timeout": milliseconds(10_000),
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
        ),
        "sync_group": (3, {"group_id": group, "generation_id": 1, "member_id": "m"}),
        "heartbeat": (3, {"group_id": group, "generation_id": 1, "member_id": "m"}),
        "leave_group": (2, {"group_id": group, "member_id": "m"}),
        "offset_commit": (
            7,
            {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "topics": [{"name": topic, "partitions": [COMMITTED]}],
            },
        ),
        "offset_commit, large": (
            9,
            {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "topics": [
                    {"name": topic, "partitions": [{**COMMITTED, "committed_metadata": "x" * 3000}] * 200}
                ],
            },
        ),
        "offset_fetch": (
            8,
            {"groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]},
        ),
        "offset_delete": (0, {"group_id": group, "topics": places}),
        "describe_groups": (5, {"groups": [group]}),
        "list_groups": (4, {}),
        "delete_groups": (2, {"groups_names": [group]}),
        "consumer_group_heartbeat": (
            0,
            {
                "group_id": f"{group}-new",
                "member_id": "",
                "subscribed_topic_names": [topic],
                "rebalance_timeout": milliseconds(10_000),
                "topic_partitions": [],
            },
        ),
        "consumer_group_describe": (0, {"group_ids": [group]}),
        # They do not wait; what they say of this node must hold all the same.
        "describe_cluster": (1, {}),
        "describe_topic_partitions": (0, {"topics": [{"name": topic}]}),
    }


CHANGES = ("node removed", "topics forgotten", "topic deleted", "coordinator moved")


@pytest.fixture(scope="module", params=["direct", "proxy"])
def three(request: pytest.FixtureRequest) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(routing=request.param)
    try:
        yield nodes
    finally:
        nodes.close()


@pytest.fixture
def interruption(three: ThreeNodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Interruption]:
    found = Interruption(three.nodes[1].broker, monkeypatch)
    yield found
    found.over()
    loop = three.nodes[1].loop
    # Whatever it gave up, it coordinates again.
    loop.call_soon_threadsafe(three.nodes[1].broker.services.coordinators.follow_leaders)


@pytest.fixture
def topic(three: ThreeNodes, request: pytest.FixtureRequest) -> str:
    """Of node 1, with three records."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[-200:]
    wanted = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [1]}],
    }
    with RawClient(three.nodes[1].listen) as client:
        (created,) = client.call("create_topics", 7, topics=[wanted]).topics
        assert created.error_code == 0
        for _ in range(3):
            assert produce(client, name, batch_of(b"x")).error_code == 0
    return name


@pytest.fixture
def group(three: ThreeNodes, topic: str) -> str:
    """The name of one that node 1 coordinates, with a position."""
    with RawClient(three.nodes[1].listen) as client:
        (found,) = client.call("find_coordinator", 4, key_type=0, coordinator_keys=["any"]).coordinators
        assert found.error_code == 0
        until(lambda: three.knows(1, OFFSETS_TOPIC))
        partitions = three.nodes[1].broker.metadata.image.topics[OFFSETS_TOPIC].partitions
        names = (f"group-{topic}-{number}" for number in range(10_000))
        name = next(each for each in names if partitions[partition_for(each, len(partitions))].leader == 1)
        version, fields = cases(topic, name)["offset_commit"]
        until(lambda: client.call("offset_commit", version, **fields).topics[0].partitions[0].error_code == 0)
    return name


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", list(cases("", "")))
def test_a_request_is_answered_whatever_changes_meanwhile(
    three: ThreeNodes, interruption: Interruption, topic: str, group: str, case: str, change: str
) -> None:
    async def delete_topic(broker: Node) -> None:
        await broker.metadata.submit(DeleteTopics((TopicRef(topic),)))

    changes = {
        "node removed": interruption.remove_node,
        "topics forgotten": interruption.forget_topics,
        "topic deleted": delete_topic,
        "coordinator moved": interruption.resign,
    }
    version, fields = cases(topic, group)[case]
    with RawClient(three.nodes[1].listen) as client:
        interruption.change = changes[change]
        # An end of the connection, or silence, fails here.
        client.call(case.partition(",")[0], version, **fields)
    assert not interruption.failures.seen


@pytest.mark.parametrize("case", ["metadata", "describe_cluster"])
def test_a_client_of_a_removed_node_is_told_of_the_others_or_of_the_only_one_it_knows(
    three: ThreeNodes, interruption: Interruption, topic: str, group: str, case: str
) -> None:
    node = three.nodes[1]
    node.loop.call_soon_threadsafe(lambda: node.loop.create_task(interruption.remove_node(node.broker)))
    until(lambda: 1 not in node.broker.metadata.image.brokers)
    version, fields = cases(topic, group)[case]
    with RawClient(node.listen) as client:
        found = client.call(case, version, **fields)
    is_only_one = node.broker.settings.broker.client_routing == "proxy"
    expected = [three.nodes[number].broker.listen for number in ((1,) if is_only_one else (2, 3))]
    assert [(each.host, each.port) for each in found.brokers] == expected


def test_a_request_that_is_cancelled_ends_its_connection(
    three: ThreeNodes, interruption: Interruption, topic: str, group: str
) -> None:
    """There is no answer to come: without an end the client would wait for ever."""

    async def cancelled(_broker: Node) -> None:
        raise asyncio.CancelledError

    version, fields = cases(topic, group)["create_topics"]
    with RawClient(three.nodes[1].listen) as client:
        interruption.change = cancelled
        client.send("create_topics", version, **fields)
        assert client.is_closed_by_broker()


def test_a_coordinator_is_looked_for_by_a_node_that_has_not_heard_of_any(
    three: ThreeNodes, interruption: Interruption, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The internal topic is there, this node does not know it yet, and what it loads meanwhile is taken from it."""
    node = three.nodes[1]

    def taken_away(_hosted: Hosted[GroupCoordinator]) -> list["asyncio.Future[None]"]:
        loading = node.loop.create_future()
        loading.cancel()
        return [loading]

    monkeypatch.setattr(Hosted, "_elect", taken_away)
    node.loop.call_soon_threadsafe(lambda: node.loop.create_task(interruption.forget_topics(node.broker)))
    until(lambda: not node.broker.metadata.image.topics)
    version, fields = cases(topic, group)["find_coordinator"]
    with RawClient(node.listen) as client:
        (found,) = client.call("find_coordinator", version, **fields).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not interruption.failures.seen


def test_records_are_not_deleted_by_a_node_that_leads_no_more(
    three: ThreeNodes, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader may not have heard of the new start."""
    delete = Upkeep.delete_records_before

    async def then_lose_office(upkeep: Upkeep, partition: Partition, offset: int) -> None:
        await delete(upkeep, partition, offset)
        partition.follow(2, partition.leader_epoch + 1)

    monkeypatch.setattr(Upkeep, "delete_records_before", then_lose_office)
    version, fields = cases(topic, group)["delete_records"]
    with RawClient(three.nodes[1].listen) as client:
        (found,) = client.call("delete_records", version, **fields).topics[0].partitions
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_time_is_not_looked_up_by_a_node_that_leads_no_more(
    three: ThreeNodes, interruption: Interruption, topic: str, group: str
) -> None:
    """The answer, that there is none so late, may be wrong by now."""

    async def lose_office(broker: Node) -> None:
        partition = broker.partitions.find(topic, 0)
        partition.follow(2, partition.leader_epoch + 1)

    version, fields = cases(topic, group)["list_offsets"]
    with RawClient(three.nodes[1].listen) as client:
        interruption.change = lose_office
        (found,) = client.call("list_offsets", version, **fields).topics[0].partitions
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
