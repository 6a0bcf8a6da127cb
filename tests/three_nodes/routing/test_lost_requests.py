"""Requests whose answer is lost between two nodes: what changes a group is not done a second time for the client."""

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.broker.routing import plans, relay
from millstream.coordinator.definition import partition_for
from millstream.protocol.errors import ErrorCode
from support.raw_client import RawClient, milliseconds
from support.three_nodes import ThreeNodes, until

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
# There is no such node: a lane to it is lost at once.
NO_NODE = 9


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(routing="proxy")
    try:
        assert nodes.create(1, "t") == 0
        until(lambda: nodes.knows(1, "t"))
        yield nodes
    finally:
        nodes.close()


@pytest.fixture
def client(three: ThreeNodes) -> Iterator[RawClient]:
    with RawClient(three.nodes[1].listen) as client:
        yield client


@pytest.fixture
def group(three: ThreeNodes, client: RawClient, request: pytest.FixtureRequest) -> str:
    """The name of one that node 1 coordinates itself."""
    (found,) = client.call("find_coordinator", 4, key_type=0, coordinator_keys=["any"]).coordinators
    assert found.error_code == 0
    until(lambda: three.knows(1, "__consumer_offsets"))
    partitions = three.nodes[1].broker.metadata.image.topics["__consumer_offsets"].partitions
    names = (f"{request.node.name}-{number}" for number in range(10_000))
    return next(name for name in names if partitions[partition_for(name, len(partitions))].leader == 1)


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The answers of the group's coordinator, which was another node until a moment ago."""

    def begin() -> None:
        monkeypatch.setattr(relay, "coordinator_of", lambda *_: NO_NODE)
        monkeypatch.setattr(plans, "coordinator_of", lambda *_: NO_NODE)

    yield begin
    monkeypatch.undo()


def commit(client: RawClient, group: str, offset: int) -> int:
    place = {"partition_index": 0, "committed_offset": offset}
    reply = client.call(
        "offset_commit",
        9,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": "t", "partitions": [place]}],
    )
    return int(reply.topics[0].partitions[0].error_code)


def position(client: RawClient, group: str) -> int:
    wanted = {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]}
    (found,) = client.call("offset_fetch", 8, groups=[wanted]).groups
    assert found.error_code == 0
    return int(found.topics[0].partitions[0].committed_offset)


def test_a_commit_that_was_lost_is_not_made_after_a_later_one(
    client: RawClient, group: str, lose: Any
) -> None:
    until(lambda: commit(client, group, 7) == 0)
    lose()
    assert commit(client, group, 3) == NOT_COORDINATOR
    assert position(client, group) == 7, "a read may be answered here, where the group is by now"


def test_a_group_that_was_made_again_is_not_deleted_once_more(
    client: RawClient, group: str, lose: Any
) -> None:
    until(lambda: commit(client, group, 7) == 0)
    lose()
    (result,) = client.call("delete_groups", 2, groups_names=[group]).results
    assert result.error_code == NOT_COORDINATOR
    assert position(client, group) == 7


REQUESTS: dict[str, tuple[int, dict[str, Any]]] = {
    "join_group": (
        5,
        {
            "session_timeout": milliseconds(10_000),
            "rebalance_timeout": milliseconds(10_000),
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    "sync_group": (3, {"generation_id": 1, "member_id": "m"}),
    "heartbeat": (3, {"generation_id": 1, "member_id": "m"}),
    "leave_group": (2, {"member_id": "m"}),
    "offset_delete": (0, {"topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}),
    "consumer_group_heartbeat": (0, {"member_id": "", "subscribed_topic_names": ["t"]}),
}


@pytest.mark.parametrize("name", list(REQUESTS))
def test_each_request_that_changes_a_group_is_refused_in_its_own_form(
    client: RawClient, group: str, lose: Any, name: str
) -> None:
    until(lambda: commit(client, group, 7) == 0)
    lose()
    version, fields = REQUESTS[name]
    assert client.call(name, version, group_id=group, **fields).error_code == NOT_COORDINATOR
    (described,) = client.call("describe_groups", 5, groups=[group]).groups
    assert described.members == ()
    assert position(client, group) == 7


def test_a_large_commit_that_was_lost_is_refused_too(client: RawClient, group: str, lose: Any) -> None:
    until(lambda: commit(client, group, 7) == 0)
    lose()
    place = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "x" * 3000}
    topics = [{"name": "t", "partitions": [place] * 200}]
    reply = client.call("offset_commit", 9, group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    assert {each.error_code for each in reply.topics[0].partitions} == {NOT_COORDINATOR}
    assert position(client, group) == 7


def test_a_lane_ends_with_the_registration_that_it_was_made_to(three: ThreeNodes) -> None:
    broker = three.nodes[1].broker
    with RawClient(three.nodes[1].listen) as client:
        until(lambda: client.call("list_groups", 4).error_code == 0)
        (way,) = broker.routing.relays._relays
        before = dict(way._lanes)
        assert {node for node, _ in before} == {1, 2, 3}
        # As if node 2 had been started again at the same address.
        before[2, "others"].to = before[2, "others"].to._replace(epoch=-5)
        three.nodes[1].loop.call_soon_threadsafe(way.brokers_changed)
        until(lambda: before[2, "others"].closed)
        assert not before[3, "others"].closed
        assert client.call("list_groups", 4).error_code == 0
        assert way._lanes[2, "others"].to.epoch == broker.metadata.image.brokers[2].epoch


def test_a_client_whose_answer_cannot_be_put_together_is_not_left_waiting(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_request: Any, _answers: list[Any]) -> Any:
        raise ValueError("an answer that was not expected")

    monkeypatch.setitem(plans.PLANS, "list_groups", plans.PLANS["list_groups"]._replace(join=fail))
    with RawClient(three.nodes[1].listen) as client:
        client.send("list_groups", 4)
        assert client.is_closed_by_broker()
