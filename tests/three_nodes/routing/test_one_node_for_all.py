"""Three nodes in one process, and clients that know one of them: it answers for all."""

import asyncio
import struct
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from millstream.broker.partitions.registry import CutOff
from millstream.broker.routing import relay, split
from millstream.coordinator.definition import partition_for
from millstream.protocol.api import PEER_CLIENT
from millstream.protocol.errors import ErrorCode
from millstream.protocol.peer_client import Greeting, encode_greeting
from millstream.protocol.record_batch import iter_batches
from support.held_disk import HeldDisk
from support.raw_client import (
    ConnectionEnded,
    RawClient,
    batch_of,
    fetch_fields,
    fetched_partitions,
    frame,
    milliseconds,
    produce,
    produce_fields,
)
from support.three_nodes import ThreeNodes, until

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
# Far longer than anything takes: an answer that comes at all came because there was something to tell.
LONG_MS = 300_000

Result = TypeVar("Result")


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(routing="proxy")
    try:
        yield nodes
    finally:
        nodes.close()


@pytest.fixture
def topic(three: ThreeNodes, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("[", "-").replace("]", "")
    create(three, name)
    return name


def create(three: ThreeNodes, name: str) -> None:
    """Partition 0 is led by node 1, 1 by 2, 2 by 3."""
    wanted = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": index, "broker_ids": [index + 1]} for index in range(3)],
    }
    with RawClient(three.nodes[1].listen) as client:
        (created,) = client.call("create_topics", 7, topics=[wanted]).topics
    assert created.error_code == 0
    for number in three.nodes:
        until(lambda n=number: three.knows(n, name))


@pytest.fixture
def client(three: ThreeNodes) -> Iterator[RawClient]:
    broker = three.nodes[1].broker
    with RawClient(three.nodes[1].listen) as client:
        yield client
    # Whatever was under way for the client is given up with it.
    until(lambda: broker.server.memory.used_bytes == 0 and broker.server.reply_memory.used_bytes == 0)


def write_all(client: RawClient, topic: str, *values: bytes) -> None:
    reply = client.call("produce", 9, **produce_fields(topic, *map(batch_of, values)))
    outcomes = reply.responses[0].partition_responses
    assert [(each.index, each.error_code) for each in outcomes] == [(i, 0) for i in range(len(values))]


def sizes(reply: Any) -> list[int]:
    return [len(each.records or b"") for each in fetched_partitions(reply)]


def count_of(records: bytes | None) -> int:
    return sum(header.record_count for _, header in iter_batches(memoryview(records or b"")))


def test_clients_are_told_of_one_node(client: RawClient, topic: str) -> None:
    known = client.call("metadata", 12, topics=[{"name": topic}])
    assert [each.node_id for each in known.brokers] == [1]
    assert known.controller_id == 1
    assert [each.leader_id for each in known.topics[0].partitions] == [1, 1, 1]
    assert [each.replica_nodes for each in known.topics[0].partitions] == [(1,), (2,), (3,)]
    described = client.call("describe_cluster", 1)
    assert ([each.broker_id for each in described.brokers], described.controller_id) == ([1], 1)
    (pages,) = client.call("describe_topic_partitions", 0, topics=[{"name": topic}]).topics
    assert {each.leader_id for each in pages.partitions} == {1}
    for group in ("a", "b", "c", "d"):
        (found,) = client.call("find_coordinator", 4, key_type=0, coordinator_keys=[group]).coordinators
        assert (found.node_id, found.error_code) == (1, 0)


def test_records_are_sent_once_however_often_a_fetch_names_their_partition(
    client: RawClient, topic: str
) -> None:
    write_all(client, topic, b"a", b"b", b"c")
    wanted = {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fields = fetch_fields(topic, topics=[{"topic": topic, "partitions": [wanted] * 5}])
    answers = fetched_partitions(client.call("fetch", 12, **fields))
    assert [(each.partition_index, each.error_code, each.high_watermark) for each in answers] == [
        (1, 0, 1)
    ] * 5
    assert [count_of(each.records) for each in answers] == [1, 0, 0, 0, 0]


def test_where_a_topic_is_direct_clients_are_told_of_all_nodes(
    three: ThreeNodes, client: RawClient, topic: str
) -> None:
    def set_to(operation: int) -> None:
        change = {"name": "client.routing", "config_operation": operation, "value": "direct"}
        resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
        (reply,) = client.call("incremental_alter_configs", 1, resources=[resource]).responses
        assert reply.error_code == 0

    other = "beside-direct"
    create(three, other)
    set_to(0)
    known = client.call("metadata", 12, topics=[{"name": topic}, {"name": other}])
    assert [each.node_id for each in known.brokers] == [1, 2, 3]
    assert [[each.leader_id for each in found.partitions] for found in known.topics] == [[1, 2, 3], [1, 1, 1]]
    groups = [f"group-{number}" for number in range(12)]
    found = client.call("find_coordinator", 4, key_type=0, coordinator_keys=groups).coordinators
    assert {each.node_id for each in found} == {1}, "groups go by the node's setting"
    write_all(client, other, b"a", b"b", b"c")
    assert produce(client, topic, batch_of(b"x"), partition=1).error_code == NOT_LEADER
    set_to(1)
    assert [each.node_id for each in client.call("metadata", 12, topics=[]).brokers] == [1]
    write_all(client, topic, b"a", b"b", b"c")


def test_a_node_that_is_cut_off_has_nothing_to_say_to_those_who_know_it_alone(three: ThreeNodes) -> None:
    node = three.nodes[1]
    # In truth it is not cut off, and its watch would soon say so.
    node.loop.call_soon_threadsafe(node.broker.membership._contact.cancel)
    with RawClient(node.listen) as client:
        client.call("metadata", 12, topics=[])
        node.loop.call_soon_threadsafe(node.broker.isolation.cut_off, CutOff.SILENCE)
        until(lambda: node.broker.partitions.is_cut_off)
        with pytest.raises(ConnectionEnded):
            client.call("metadata", 12, topics=[])
    with RawClient(node.listen) as client, pytest.raises(ConnectionEnded):
        client.call("metadata", 12, topics=[])
    node.loop.call_soon_threadsafe(node.broker.isolation.rejoin, CutOff.SILENCE)
    until(lambda: not node.broker.partitions.is_cut_off)
    with RawClient(node.listen) as client:
        assert client.call("metadata", 12, topics=[]).brokers


def test_one_request_reaches_all_leaders(client: RawClient, topic: str) -> None:
    write_all(client, topic, b"a", b"bb", b"ccc")
    reply = client.call("fetch", 11, **fetch_fields(topic, 0, 0, 0))
    assert [count_of(each.records) for each in fetched_partitions(reply)] == [1, 1, 1]
    timestamps = [{"partition_index": index, "timestamp": -1} for index in (2, 0, 1)]
    listed = client.call("list_offsets", 7, topics=[{"name": topic, "partitions": timestamps}])
    found = listed.topics[0].partitions
    assert [(each.partition_index, each.offset, each.error_code) for each in found] == [
        (2, 1, 0),
        (0, 1, 0),
        (1, 1, 0),
    ]
    epochs = [{"partition": index, "leader_epoch": 0} for index in range(3)]
    ended = client.call(
        "offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": topic, "partitions": epochs}]
    )
    assert [(each.partition, each.end_offset) for each in ended.topics[0].partitions] == [
        (0, 1),
        (1, 1),
        (2, 1),
    ]
    deleted = client.call(
        "delete_records",
        2,
        topics=[
            {"name": topic, "partitions": [{"partition_index": i, "offset": 1} for i in range(3)]},
            {"name": "nowhere", "partitions": [{"partition_index": 0, "offset": 1}]},
        ],
        timeout=milliseconds(10_000),
    )
    assert [each.low_watermark for each in deleted.topics[0].partitions] == [1, 1, 1]
    assert deleted.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_waits_at_all_leaders_and_the_first_to_have_something_answers(
    three: ThreeNodes, client: RawClient, topic: str
) -> None:
    offsets = [0, 0, 0]
    with RawClient(three.nodes[2].listen) as other:
        for partition in (2, 1, 1, 0, 2):
            client.send("fetch", 11, **fetch_fields(topic, *offsets, max_wait_ms=LONG_MS))
            assert not client.has_reply(0.05)
            assert produce(other, topic, batch_of(b"x"), partition=partition).error_code == 0
            reply = client.receive()
            assert [size > 0 for size in sizes(reply)] == [index == partition for index in range(3)]
            offsets[partition] += 1


def test_all_that_was_asked_for_is_in_the_answer_and_the_rest_in_the_next(
    client: RawClient, topic: str
) -> None:
    write_all(client, topic, b"a" * 50_000, b"b" * 50_000, b"c" * 50_000)
    offsets = [0, 0, 0]
    for _ in range(9):
        reply = client.call("fetch", 11, **fetch_fields(topic, *offsets, max_bytes=60_000))
        assert len(sizes(reply)) == 3, "an answer without a session names every partition"
        assert 0 < sum(sizes(reply)) <= 60_000
        for index, size in enumerate(sizes(reply)):
            offsets[index] += size > 0
        if offsets == [1, 1, 1]:
            break
    assert offsets == [1, 1, 1]


def test_the_least_bytes_are_counted_over_all_leaders(
    three: ThreeNodes, client: RawClient, topic: str
) -> None:
    client.send("fetch", 11, **fetch_fields(topic, 0, 0, 0, max_wait_ms=LONG_MS, min_bytes=7_000))
    with RawClient(three.nodes[3].listen) as other:
        for partition in (1, 2, 2, 0):
            assert not client.has_reply(0.05), "there is less than was asked for"
            assert produce(other, topic, batch_of(b"x" * 2_000), partition=partition).error_code == 0
    reply = client.receive()
    assert sum(sizes(reply)) >= 7_000
    assert [size > 0 for size in sizes(reply)] == [True, True, True]


def test_sessions_tell_what_changed(client: RawClient, topic: str) -> None:
    write_all(client, topic, b"a", b"b", b"c")
    full = client.call("fetch", 11, **fetch_fields(topic, 0, 0, 0, session_id=0, session_epoch=0))
    assert full.session_id > 0
    assert len(fetched_partitions(full)) == 3
    fields = {"session_id": full.session_id, "max_wait_ms": 0}
    moved = client.call("fetch", 11, **fetch_fields(topic, 1, 1, 1, session_epoch=1, **fields))
    assert fetched_partitions(moved) == []
    assert produce(client, topic, batch_of(b"d"), partition=2).error_code == 0
    nothing_new = fetch_fields(topic, session_epoch=2, **fields) | {"topics": []}
    (changed,) = fetched_partitions(client.call("fetch", 11, **nothing_new))
    assert (changed.partition_index, count_of(changed.records)) == (2, 1)
    wrong = client.call("fetch", 11, **fetch_fields(topic, session_epoch=9, **fields) | {"topics": []})
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_what_is_not_there_is_said_of_it_alone(client: RawClient, topic: str) -> None:
    write_all(client, topic, b"a", b"b", b"c")
    fields = fetch_fields(topic, 0, 7, 0)
    fields["topics"].append({"topic": "nowhere", "partitions": [{"partition": 0, "partition_max_bytes": 99}]})
    found = fetched_partitions(client.call("fetch", 11, **fields))
    assert [(each.error_code, count_of(each.records)) for each in found] == [
        (0, 1),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 0),
        (0, 1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]


def test_a_reader_that_seeks_is_not_answered_from_where_it_was(
    three: ThreeNodes, client: RawClient, topic: str
) -> None:
    write_all(client, topic, b"a", b"b", b"c")
    reply = client.call("fetch", 11, **fetch_fields(topic, 1, 1, 1, max_wait_ms=50))
    assert sizes(reply) == [0, 0, 0]
    client.send("fetch", 11, **fetch_fields(topic, 1, 1, 1, max_wait_ms=LONG_MS))
    with RawClient(three.nodes[1].listen) as other:
        assert produce(other, topic, batch_of(b"d"), partition=0).error_code == 0
    client.receive()
    # Polls of partitions 1 and 2 are still at their leaders, for other offsets.
    reply = client.call("fetch", 11, **fetch_fields(topic, 2, 0, 0, max_wait_ms=LONG_MS))
    assert sum(sizes(reply)) > 0
    for each in fetched_partitions(reply):
        for _, header in iter_batches(memoryview(each.records or b"")):
            assert header.base_offset == 0


def test_requests_behind_each_other_are_answered_in_their_order(client: RawClient, topic: str) -> None:
    for number in range(20):
        client.send("produce", 9, **produce_fields(topic, *[batch_of(b"%d" % number)] * 3))
        client.send("fetch", 11, **fetch_fields(topic, 0, 0, 0))
    for number in range(20):
        outcomes = client.receive().responses[0].partition_responses
        assert [(each.error_code, each.base_offset) for each in outcomes] == [(0, number)] * 3
        client.receive()


def for_nodes(three: ThreeNodes) -> str:
    """Where the first node listens for the others."""
    return three.nodes[1].broker.metadata.image.brokers[1].for_nodes.address


def test_a_request_takes_one_hop(three: ThreeNodes, topic: str) -> None:
    cluster_id = three.nodes[1].broker.metadata.image.cluster_id
    head = struct.pack(">hhih", PEER_CLIENT, 0, 1, -1)
    for greeting in (Greeting(), Greeting(cluster_id, 3, "10.0.0.9:4000")):
        with RawClient(for_nodes(three)) as client:
            client.send_bytes(frame(head + encode_greeting(greeting)))
            assert client.receive_frame() == struct.pack(">i", 1)
            assert produce(client, topic, batch_of(b"x"), partition=0).error_code == 0
            assert produce(client, topic, batch_of(b"x"), partition=1).error_code == NOT_LEADER
            assert len(client.call("metadata", 12, topics=[]).brokers) == 3, "and sees all nodes"


def test_a_node_of_another_cluster_does_not_forward_here(three: ThreeNodes) -> None:
    with RawClient(for_nodes(three)) as client:
        greeting = encode_greeting(Greeting("x" * 22, 3, "10.0.0.9:4000"))
        client.send_bytes(frame(struct.pack(">hhih", PEER_CLIENT, 0, 1, -1) + greeting))
        assert client.is_closed_by_broker()


def test_without_acknowledgement_nothing_is_answered(client: RawClient, topic: str) -> None:
    for number in range(3):
        client.send("produce", 9, **produce_fields(topic, *[batch_of(b"x")] * 3, acks=0))
        client.expect_no_reply()
        assert number < 3
    until(
        lambda: (
            [
                count_of(each.records)
                for each in fetched_partitions(client.call("fetch", 11, **fetch_fields(topic, 0, 0, 0)))
            ]
            == [3, 3, 3]
        )
    )


def test_what_was_sent_without_acknowledgement_arrives_though_the_client_has_gone(
    three: ThreeNodes, client: RawClient, topic: str
) -> None:
    """As it does at its leader, which handles what it has read: here it was thrown away with the client's lanes."""
    with RawClient(three.nodes[1].listen) as other:
        other.send("produce", 9, **produce_fields(topic, *[batch_of(b"x")] * 3, acks=0))
    until(
        lambda: (
            [
                count_of(each.records)
                for each in fetched_partitions(client.call("fetch", 11, **fetch_fields(topic, 0, 0, 0)))
            ]
            == [1, 1, 1]
        )
    )
    until(lambda: three.nodes[1].broker.server.memory.used_bytes == 0)


def test_a_node_that_stops_closes_what_it_had_left_open_for_a_client_that_has_gone(
    three: ThreeNodes, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: dict[str, relay.ClientRelay] = {}
    lanes: list[relay.RemoteLane] = []
    close = relay.ClientRelay.close

    def closing(of: relay.ClientRelay) -> None:
        close(of)
        closed[of.connection.peer] = of

    class Kept(relay.RemoteLane):
        def __init__(self, server: Any, node_id: int, to: Any, greeting: bytes) -> None:
            lanes.append(self)
            super().__init__(server, node_id, to, greeting)

    monkeypatch.setattr(relay, "RemoteLane", Kept)
    monkeypatch.setattr(relay.ClientRelay, "close", closing)
    disk = HeldDisk(three.nodes[2])
    try:
        with RawClient(three.nodes[1].listen) as other:
            other.send("produce", 9, **produce_fields(topic, *[batch_of(b"x")] * 3, acks=0))
            address = "{}:{}".format(*other.socket.getsockname())
        until(lambda: address in closed)
        assert not all(lane.closed for lane in lanes), "it waits for a leader whose disk is held"

        async def stop() -> None:
            closed[address].relays.close()

        asyncio.run_coroutine_threadsafe(stop(), three.nodes[1].loop).result(90)
        assert all(lane.closed for lane in lanes)
    finally:
        disk.let_go()


def test_a_long_request_that_is_read_when_its_client_has_gone_opens_no_connection(
    three: ThreeNodes, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody closed it: it stayed open until the other node found it idle."""
    reads, closed, may_go_on, sent = (threading.Event() for _ in range(4))
    made: list[int] = []
    decode, close, send = split._decode, relay.ClientRelay.close, relay.ClientRelay.send

    def held(*given: Any) -> Any:
        reads.set()
        assert may_go_on.wait(90)
        return decode(*given)

    def closing(of: relay.ClientRelay) -> None:
        close(of)
        closed.set()

    def sending(of: relay.ClientRelay, *given: Any, **named: Any) -> None:
        send(of, *given, **named)
        sent.set()

    class Counted(relay.RemoteLane):
        def __init__(self, server: Any, node_id: int, to: Any, greeting: bytes) -> None:
            made.append(node_id)
            super().__init__(server, node_id, to, greeting)

    monkeypatch.setattr(split, "_decode", held)
    monkeypatch.setattr(relay, "RemoteLane", Counted)
    monkeypatch.setattr(relay.ClientRelay, "close", closing)
    monkeypatch.setattr(relay.ClientRelay, "send", sending)
    wanted = [{"partition_index": index % 3, "timestamp": -1} for index in range(1_000)]
    with RawClient(three.nodes[1].listen) as other:
        other.send("list_offsets", 7, topics=[{"name": topic, "partitions": wanted}])
        assert reads.wait(90)
        # A connection that waits for a long request is not read: the node closes it, when it stops for example.
        address = "{}:{}".format(*other.socket.getsockname())
        server = three.nodes[1].broker.server
        [connection] = [each for each in server._connections if each.peer == address]
        three.nodes[1].loop.call_soon_threadsafe(connection.abort)
        assert closed.wait(90)
    may_go_on.set()
    assert sent.wait(90)
    assert not made


def test_a_client_with_much_under_way_is_not_read_from(
    three: ThreeNodes, client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MOST_HELD_BYTES", 200_000)
    memory = three.nodes[1].broker.server.memory
    disk = HeldDisk(three.nodes[2])
    try:
        for _ in range(30):
            client.send("produce", 9, **produce_fields(topic, batch_of(b"x" * 40_000), partition=1))
        until(lambda: memory.used_bytes > 200_000)
        assert not client.has_reply(0.2)
        # What it had sent when it was stopped, and one that was being read.
        assert memory.used_bytes < 400_000
    finally:
        disk.let_go()
    for number in range(30):
        (outcome,) = client.receive().responses[0].partition_responses
        assert (outcome.error_code, outcome.base_offset) == (0, number)


def test_groups_of_all_coordinators_through_one(three: ThreeNodes, client: RawClient, topic: str) -> None:
    names = [f"group-{number}" for number in range(9)]
    for name in names:
        (found,) = client.call("find_coordinator", 4, key_type=0, coordinator_keys=[name]).coordinators
        assert found.error_code == 0
    image = three.nodes[1].broker.metadata.image
    partitions = image.topics["__consumer_offsets"].partitions
    coordinators = {name: partitions[partition_for(name, len(partitions))].leader for name in names}
    assert set(coordinators.values()) == {1, 2, 3}
    for number, name in enumerate(names):
        place = {"partition_index": 1, "committed_offset": number}
        fields = {
            "group_id": name,
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": topic, "partitions": [place]}],
        }
        until(lambda f=fields: client.call("offset_commit", 9, **f).topics[0].partitions[0].error_code == 0)
    wanted = [{"group_id": name, "topics": [{"name": topic, "partition_indexes": [1]}]} for name in names]
    groups = client.call("offset_fetch", 9, groups=wanted).groups
    assert [(each.group_id, each.topics[0].partitions[0].committed_offset) for each in groups] == [
        (name, number) for number, name in enumerate(names)
    ]
    listed = client.call("list_groups", 5)
    assert listed.error_code == 0
    assert {each.group_id for each in listed.groups} >= set(names)
    described = client.call("describe_groups", 5, groups=names).groups
    assert [(each.group_id, each.group_state) for each in described] == [(name, "Empty") for name in names]
    deleted = client.call("delete_groups", 2, groups_names=names).results
    assert [(each.group_id, each.error_code) for each in deleted] == [(name, 0) for name in names]


def test_members_are_shown_where_they_are(three: ThreeNodes, client: RawClient) -> None:
    for name in ("m-0", "m-1", "m-2", "m-3"):
        client.call("find_coordinator", 4, key_type=0, coordinator_keys=[name])

        def join(member_id: str, group: str = name) -> Any:
            return client.call(
                "join_group",
                5,
                group_id=group,
                member_id=member_id,
                session_timeout=milliseconds(10_000),
                rebalance_timeout=milliseconds(10_000),
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b""}],
            )

        until(lambda: join("").member_id != "")
        joined = join(join("").member_id)
        assert joined.error_code == 0
        (group,) = client.call("describe_groups", 5, groups=[name]).groups
        (member,) = [each for each in group.members if each.member_id == joined.member_id]
        assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")
