"""Three nodes in one process that tell clients who leads, and topics for which each node answers by itself."""

import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.partitions.registry import CutOff
from millstream.protocol.api import PEER_CLIENT
from millstream.protocol.errors import ErrorCode
from millstream.protocol.peer_client import Greeting, encode_greeting
from millstream.protocol.record_batch import iter_batches
from support.raw_client import RawClient, batch_of, fetched_partitions, frame, milliseconds, produce
from support.three_nodes import ThreeNodes, until

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
TOPIC, SET, DELETE = 2, 0, 1
# Far longer than anything takes: an answer that comes at all came because there was something to tell.
LONG_MS = 300_000


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes()
    try:
        yield nodes
    finally:
        nodes.close()


@pytest.fixture
def client(three: ThreeNodes) -> Iterator[RawClient]:
    with RawClient(three.nodes[1].listen) as client:
        yield client


def create(three: ThreeNodes, name: str, routing: str | None, replicas: tuple[int, ...] = ()) -> str:
    """Of partitions 0 to 2, each is kept by the node with the next number, unless all are to have these replicas."""
    wanted = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": list(replicas) or [index + 1]} for index in range(3)
        ],
        "configs": [] if routing is None else [{"name": "client.routing", "value": routing}],
    }
    with RawClient(three.nodes[1].listen) as client:
        (created,) = client.call("create_topics", 7, topics=[wanted]).topics
    assert created.error_code == 0
    for number in three.nodes:
        until(lambda n=number: three.knows(n, name))
    return name


@pytest.fixture
def topics(three: ThreeNodes, request: pytest.FixtureRequest) -> tuple[str, str]:
    """One that is proxied and one that is direct."""
    name = str(request.node.name)
    return create(three, f"{name}-proxied", "proxy"), create(three, f"{name}-direct", None)


def leaders(client: RawClient, topic: str) -> list[int]:
    (found,) = client.call("metadata", 12, topics=[{"name": topic}]).topics
    (page,) = client.call("describe_topic_partitions", 0, topics=[{"name": topic}]).topics
    assert [each.leader_id for each in found.partitions] == [each.leader_id for each in page.partitions]
    return [each.leader_id for each in found.partitions]


def set_routing(client: RawClient, topic: str, value: str | None) -> Any:
    change = {"name": "client.routing", "config_operation": DELETE if value is None else SET, "value": value}
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [change]}
    return client.call("incremental_alter_configs", 1, resources=[resource]).responses[0]


def routing(three: ThreeNodes, number: int, topic: str) -> str | None:
    return three.nodes[number].broker.metadata.image.topics[topic].configs.get("client.routing")


def write(client: RawClient, *topics: str) -> list[list[int]]:
    """One batch to each partition, in one request; the errors of each topic."""
    reply = client.call(
        "produce",
        9,
        acks=-1,
        timeout=milliseconds(15_000),
        topic_data=[
            {
                "name": topic,
                "partition_data": [{"index": index, "records": batch_of(b"x")} for index in range(3)],
            }
            for topic in topics
        ],
    )
    return [[each.error_code for each in topic.partition_responses] for topic in reply.responses]


def read(client: RawClient, *topics: str | UUID, offset: int = 0, **others: Any) -> list[tuple[int, int]]:
    """Error and number of records of each partition, asked for in one request, by names or by ids."""
    by_id = isinstance(topics[0], UUID)
    fields = {
        "max_wait": milliseconds(0),
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "topics": [
            {
                "topic_id" if by_id else "topic": topic,
                "partitions": [
                    {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                    for index in range(3)
                ],
            }
            for topic in topics
        ],
        **others,
    }
    return counted(client.call("fetch", 17 if by_id else 11, **fields))


def counted(reply: Any) -> list[tuple[int, int]]:
    return [
        (each.error_code, sum(1 for _ in iter_batches(memoryview(each.records or b""))))
        for each in fetched_partitions(reply)
    ]


def test_clients_are_told_by_topic_and_of_all_nodes(client: RawClient, topics: tuple[str, str]) -> None:
    proxied, direct = topics
    assert leaders(client, proxied) == [1, 1, 1]
    assert leaders(client, direct) == [1, 2, 3]
    both = client.call("metadata", 12, topics=[{"name": each} for each in topics])
    assert [each.node_id for each in both.brokers] == [1, 2, 3]
    assert [each.broker_id for each in client.call("describe_cluster", 1).brokers] == [1, 2, 3]
    groups = [f"group-{number}" for number in range(12)]
    found = client.call("find_coordinator", 4, key_type=0, coordinator_keys=groups).coordinators
    assert {each.node_id for each in found} == {1, 2, 3}, "groups go by the node's setting"


def test_one_request_for_topics_of_both_kinds(
    three: ThreeNodes, client: RawClient, topics: tuple[str, str]
) -> None:
    """What is proxied is done by whoever leads it; of the rest this node does what it leads."""
    proxied, direct = topics
    assert write(client, proxied, direct) == [[0, 0, 0], [0, NOT_LEADER, NOT_LEADER]]
    assert write(client, direct, proxied) == [[0, NOT_LEADER, NOT_LEADER], [0, 0, 0]]
    of_both = [(0, 2), (0, 2), (0, 2), (0, 2), (NOT_LEADER, 0), (NOT_LEADER, 0)]
    assert read(client, proxied, direct) == of_both
    assert read(client, direct) == of_both[3:]
    image = three.nodes[1].broker.metadata.image
    assert read(client, *(image.topics[each].topic_id for each in topics)) == of_both

    def asked(name: str, **partition: int) -> list[dict[str, Any]]:
        parts = [{"partition_index": index, **partition} for index in range(3)]
        return [{name: topic, "partitions": parts} for topic in topics]

    listed = client.call("list_offsets", 7, replica_id=-1, topics=asked("name", timestamp=-1)).topics
    assert [[each.offset for each in topic.partitions] for topic in listed] == [[2, 2, 2], [2, -1, -1]]
    epochs = [
        {"topic": topic, "partitions": [{"partition": index, "leader_epoch": 0} for index in range(3)]}
        for topic in topics
    ]
    ended = client.call("offset_for_leader_epoch", 4, replica_id=-1, topics=epochs).topics
    assert [[each.end_offset for each in topic.partitions] for topic in ended] == [[2, 2, 2], [2, -1, -1]]
    producers = client.call(
        "describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0, 1, 2]} for topic in topics]
    ).topics
    assert [[each.error_code for each in topic.partitions] for topic in producers] == [
        [0, 0, 0],
        [0, NOT_LEADER, NOT_LEADER],
    ]
    deleted = client.call(
        "delete_records", 2, topics=asked("name", offset=1), timeout=milliseconds(10_000)
    ).topics
    assert [[each.low_watermark for each in topic.partitions] for topic in deleted] == [
        [1, 1, 1],
        [1, -1, -1],
    ]


def test_a_fetch_of_both_kinds_waits_for_the_first_that_has_something(
    client: RawClient, three: ThreeNodes, topics: tuple[str, str]
) -> None:
    proxied, direct = topics
    ends = {(proxied, 0): 0, (proxied, 1): 0, (proxied, 2): 0, (direct, 0): 0}
    with RawClient(three.nodes[1].listen) as reader:
        for place in ((proxied, 2), (proxied, 1), (direct, 0), (proxied, 0)):
            named = [
                {
                    "topic": topic,
                    "partitions": [{"partition": i, "fetch_offset": end, "partition_max_bytes": 1 << 20}],
                }
                for (topic, i), end in ends.items()
            ]
            fields = {"max_wait": milliseconds(LONG_MS), "min_bytes": 1, "max_bytes": 1 << 24}
            reader.send("fetch", 11, **fields, topics=named)
            assert not reader.has_reply(0.05)
            assert produce(client, place[0], batch_of(b"x"), partition=place[1]).error_code == 0
            answered = reader.receive().responses
            found = [
                (topic.topic, each.partition_index)
                for topic in answered
                for each in topic.partitions
                if each.records
            ]
            assert found == [place]
            ends[place] += 1


def test_replicas_of_direct_topics_are_read_beside_proxied_ones(three: ThreeNodes, client: RawClient) -> None:
    """By clients that say where they are (KIP-392)."""
    proxied = create(three, "beside-proxied", "proxy")
    followed = create(three, "beside-followed", "direct", replicas=(2, 1))
    with RawClient(three.nodes[2].listen) as leader:
        assert write(leader, proxied, followed) == [[0, 0, 0], [0, 0, 0]]
    until(lambda: read(client, proxied, followed, rack_id="r") == [(0, 1)] * 6)
    assert read(client, proxied, followed) == [(0, 1)] * 3 + [(NOT_LEADER, 0)] * 3


def test_the_setting_is_changed_while_clients_are_connected(three: ThreeNodes) -> None:
    topic = create(three, "changed", None)
    with RawClient(three.nodes[1].listen) as client, RawClient(three.nodes[2].listen) as other:
        for _ in range(2):
            assert leaders(client, topic) == leaders(other, topic) == [1, 2, 3]
            assert write(client, topic) == [[0, NOT_LEADER, NOT_LEADER]]
            assert set_routing(client, topic, "proxy").error_code == 0
            assert leaders(client, topic) == [1, 1, 1]
            assert write(client, topic) == [[0, 0, 0]]
            until(lambda: routing(three, 2, topic) == "proxy")
            assert leaders(other, topic) == [2, 2, 2]
            assert write(other, topic) == [[0, 0, 0]]
            assert {error for error, _ in read(client, topic)} == {0}
            assert set_routing(client, topic, None).error_code == 0
            until(lambda: routing(three, 2, topic) is None)
            assert [error for error, _ in read(client, topic)] == [0, NOT_LEADER, NOT_LEADER]
        refused = set_routing(client, topic, "sideways")
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "direct, proxy" in refused.error_message


def test_a_node_that_is_cut_off_names_the_leaders(three: ThreeNodes, topics: tuple[str, str]) -> None:
    proxied, _ = topics
    node = three.nodes[1]
    # In truth it is not cut off, and its watch would soon say so.
    node.loop.call_soon_threadsafe(node.broker.membership._contact.cancel)
    with RawClient(node.listen) as client:
        assert leaders(client, proxied) == [1, 1, 1]
        node.loop.call_soon_threadsafe(node.broker.isolation.cut_off, CutOff.SILENCE)
        until(lambda: node.broker.partitions.is_cut_off)
        (found,) = client.call("metadata", 12, topics=[{"name": proxied}]).topics
        assert [each.leader_id for each in found.partitions] == [1, 2, 3]
        assert client.is_closed_by_broker(), "others know better"
    node.loop.call_soon_threadsafe(node.broker.isolation.rejoin, CutOff.SILENCE)
    until(lambda: not node.broker.partitions.is_cut_off)


def test_our_own_tools_hear_who_leads(three: ThreeNodes, client: RawClient, topics: tuple[str, str]) -> None:
    proxied, _ = topics
    client.send_bytes(frame(struct.pack(">hhih", PEER_CLIENT, 0, 1, -1) + encode_greeting(Greeting())))
    assert client.receive_frame() == struct.pack(">i", 1)
    assert leaders(client, proxied) == [1, 2, 3]
    assert write(client, proxied) == [[0, NOT_LEADER, NOT_LEADER]]
    # Another topic that is proxied from now on changes nothing for it.
    create(three, "one-more", "proxy")
    assert leaders(client, proxied) == [1, 2, 3]


def test_who_uses_no_proxied_topic_is_told_nothing_of_them_once_they_are_gone(three: ThreeNodes) -> None:
    routing = three.nodes[1].broker.routing
    with RawClient(three.nodes[1].listen) as client:
        names = [name for name in three.nodes[1].broker.metadata.image.topics if not name.startswith("__")]
        deleted = client.call(
            "delete_topics", 6, topics=[{"name": name} for name in names], timeout=milliseconds(30_000)
        )
        assert {each.error_code for each in deleted.responses} <= {0}
        until(lambda: not routing.forwards)
    with RawClient(three.nodes[1].listen) as client:
        client.call("metadata", 12, topics=[])
        assert not any(connection.relay for connection in three.nodes[1].broker.server._connections)
