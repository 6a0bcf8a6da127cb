"""Every version of the group APIs, spoken by hand: the same work gets the same answer in each."""

import datetime
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from millstream.protocol.api import APIS
from millstream.protocol.errors import ErrorCode
from support.node import NodeProcess
from support.raw_client import RawClient

API = {api.name: api for api in APIS.values()}
SESSION = datetime.timedelta(seconds=10)


def versions(name: str) -> range:
    return range(API[name].min_version, API[name].max_version + 1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"kafka.group.initial.rebalance.delay.ms": "0"}
    node = NodeProcess(tmp_path_factory.mktemp("groups"), settings=settings).start()
    try:
        with RawClient(node.bootstrap) as client:
            topic = {"name": "t", "num_partitions": 2, "replication_factor": 1}
            assert client.call("create_topics", 7, topics=[topic]).topics[0].error_code == 0
            found = client.call("find_coordinator", 4, coordinator_keys=("any",))
            assert found.coordinators[0].error_code == 0
        yield node
        node.stop()
    finally:
        node.close()


@pytest.fixture
def client(node: NodeProcess) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as client:
        yield client


@pytest.fixture
def group() -> str:
    return f"g-{uuid4()}"


def topic_id(client: RawClient) -> UUID:
    found = client.call("describe_topic_partitions", 0, topics=[{"name": "t"}], response_partition_limit=10)
    return UUID(str(found.topics[0].topic_id))


def join(client: RawClient, group: str, version: int = 3, **fields: Any) -> Any:
    given = {
        "group_id": group,
        "session_timeout": SESSION,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"anything"}],
        **fields,
    }
    return client.call("join_group", version, **given)


def commit(client: RawClient, group: str, version: int, offset: int = 42, **fields: Any) -> Any:
    by_id = version >= 10
    topic = {"topic_id": topic_id(client)} if by_id else {"name": "t"}
    partition = {"partition_index": 1, "committed_offset": offset, "committed_metadata": "m"}
    given = {"group_id": group, "member_id": "", "topics": [{**topic, "partitions": [partition]}], **fields}
    return client.call("offset_commit", version, **given).topics[0].partitions[0]


@pytest.mark.parametrize("version", versions("find_coordinator"))
def test_find_coordinator(client: RawClient, node: NodeProcess, group: str, version: int) -> None:
    if version < 4:
        found = client.call("find_coordinator", version, key=group)
    else:
        reply = client.call("find_coordinator", version, coordinator_keys=(group, "other"), key_type=0)
        assert [each.key for each in reply.coordinators] == [group, "other"]
        found = reply.coordinators[0]
    assert (found.error_code, found.node_id) == (0, 1)
    assert f"{found.host}:{found.port}" == node.bootstrap


def test_find_coordinator_refuses_keys_it_cannot_place(client: RawClient) -> None:
    unknown = client.call("find_coordinator", 6, coordinator_keys=("k",), key_type=9).coordinators[0]
    assert unknown.error_code == ErrorCode.INVALID_REQUEST
    share = client.call("find_coordinator", 6, coordinator_keys=("no colons",), key_type=2).coordinators[0]
    assert share.error_code == ErrorCode.INVALID_REQUEST
    assert client.call("find_coordinator", 3, key="k", key_type=9).error_code == ErrorCode.INVALID_REQUEST


def test_a_share_group_has_a_coordinator_and_a_transaction_has_none(client: RawClient) -> None:
    key = f"g:{UUID(int=7)}:0"
    (found,) = client.call("find_coordinator", 6, coordinator_keys=(key,), key_type=2).coordinators
    assert (found.error_code, found.node_id) == (0, 1)
    (found,) = client.call("find_coordinator", 6, coordinator_keys=("t",), key_type=1).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


@pytest.mark.parametrize("version", versions("join_group"))
def test_join_group(client: RawClient, group: str, version: int) -> None:
    first = join(client, group, version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        first = join(client, group, version, member_id=first.member_id)
    assert (first.error_code, first.generation_id, first.protocol_name) == (0, 1, "range")
    assert first.leader == first.member_id
    assert [member.metadata for member in first.members] == [b"anything"]
    assert join(client, group, version, member_id="ghost").error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions("sync_group"))
def test_sync_group(client: RawClient, group: str, version: int) -> None:
    member_id = join(client, group).member_id
    fields = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    work = [{"member_id": member_id, "assignment": b"work"}]
    given = {"group_id": group, "generation_id": 1, "member_id": member_id, "assignments": work, **fields}
    synced = client.call("sync_group", version, **given)
    assert (synced.error_code, synced.assignment) == (0, b"work")
    late = client.call("sync_group", version, **{**given, "generation_id": 7})
    assert late.error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions("heartbeat"))
def test_heartbeat(client: RawClient, group: str, version: int) -> None:
    member_id = join(client, group).member_id
    beat = {"group_id": group, "member_id": member_id, "generation_id": 1}
    assert client.call("heartbeat", version, **beat).error_code == 0
    ghost = client.call("heartbeat", version, **{**beat, "member_id": "ghost"})
    assert ghost.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions("leave_group"))
def test_leave_group(client: RawClient, group: str, version: int) -> None:
    def leave(member_id: str) -> int:
        if version < 3:
            return int(client.call("leave_group", version, group_id=group, member_id=member_id).error_code)
        left = client.call("leave_group", version, group_id=group, members=[{"member_id": member_id}])
        assert left.error_code == 0
        return int(left.members[0].error_code)

    member_id = join(client, group).member_id
    assert leave("ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(member_id) == 0
    assert leave(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions("offset_commit"))
def test_offset_commit(client: RawClient, group: str, version: int) -> None:
    assert commit(client, group, version).error_code == 0
    stale = commit(client, group, version, member_id="ghost", generation_id_or_member_epoch=3)
    assert stale.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_offset_commit_of_unknown_topics(client: RawClient, group: str) -> None:
    partition = {"partition_index": 0, "committed_offset": 1}
    topics = [{"name": "nothing", "partitions": [partition]}]
    named = client.call("offset_commit", 9, group_id=group, topics=topics)
    assert named.topics[0].name == "nothing"
    assert named.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [{"topic_id": UUID(int=99), "partitions": [partition]}]
    by_id = client.call("offset_commit", 10, group_id=group, topics=topics)
    assert by_id.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    beyond = {"partition_index": 9, "committed_offset": 1}
    topics = [{"name": "t", "partitions": [partition, beyond]}]
    codes = [
        p.error_code
        for p in client.call("offset_commit", 9, group_id=group, topics=topics).topics[0].partitions
    ]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", versions("offset_fetch"))
@pytest.mark.parametrize("everything", [False, True])
def test_offset_fetch(client: RawClient, group: str, version: int, everything: bool) -> None:
    if everything and version < 2:
        pytest.skip("version 1 must name its topics")
    commit(client, group, 9, offset=77)
    topic = {"topic_id": topic_id(client)} if version >= 10 else {"name": "t"}
    topics = None if everything else [{**topic, "partition_indexes": (0, 1)}]
    if version < 8:
        answer = client.call("offset_fetch", version, group_id=group, topics=topics)
    else:
        reply = client.call("offset_fetch", version, groups=[{"group_id": group, "topics": topics}])
        answer = reply.groups[0]
        assert answer.group_id == group
    assert getattr(answer, "error_code", 0) == 0
    offsets = {p.partition_index: p.committed_offset for p in answer.topics[0].partitions}
    assert offsets == ({1: 77} if everything else {0: -1, 1: 77})
    if version < 10:
        assert answer.topics[0].name == "t"


def test_offset_fetch_of_an_unknown_group_answers_minus_one(client: RawClient, group: str) -> None:
    topics = [{"name": "t", "partition_indexes": (0,)}]
    answer = client.call("offset_fetch", 7, group_id=group, topics=topics)
    assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (0, -1)


def test_offset_delete(client: RawClient, group: str) -> None:
    commit(client, group, 9)
    topics = [{"name": "t", "partitions": [{"partition_index": 1}, {"partition_index": 9}]}]
    deleted = client.call("offset_delete", 0, group_id=group, topics=topics)
    codes = [partition.error_code for partition in deleted.topics[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    unknown = client.call("offset_delete", 0, group_id="nothing", topics=topics)
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", versions("list_groups"))
def test_list_groups(client: RawClient, group: str, version: int) -> None:
    join(client, group)
    listed = client.call("list_groups", version)
    found = next(each for each in listed.groups if each.group_id == group)
    assert found.protocol_type == "consumer"
    if version >= 4:
        assert found.group_state == "CompletingRebalance"
        other = client.call("list_groups", version, states_filter=("Stable",))
        assert group not in [each.group_id for each in other.groups]
    if version >= 5:
        assert found.group_type == "classic"


@pytest.mark.parametrize("version", versions("describe_groups"))
def test_describe_groups(client: RawClient, group: str, version: int) -> None:
    member_id = join(client, group).member_id
    work = [{"member_id": member_id, "assignment": b"work"}]
    client.call("sync_group", 3, group_id=group, generation_id=1, member_id=member_id, assignments=work)
    known, unknown = client.call("describe_groups", version, groups=(group, "nothing")).groups
    assert (known.error_code, known.group_state, known.protocol_data) == (0, "Stable", "range")
    member = known.members[0]
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "raw", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"anything", b"work")
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", versions("delete_groups"))
def test_delete_groups(client: RawClient, group: str, version: int) -> None:
    join(client, group)
    commit(client, f"{group}-2", 9)
    wanted = (group, f"{group}-2", "nothing")
    results = client.call("delete_groups", version, groups_names=wanted).results
    assert [each.error_code for each in results] == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]


@pytest.mark.parametrize("version", versions("consumer_group_heartbeat"))
def test_consumer_group_heartbeat_and_describe(client: RawClient, group: str, version: int) -> None:
    beat = {"group_id": group, "member_id": "me", "member_epoch": 0}
    refused = client.call("consumer_group_heartbeat", version, **beat)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "RebalanceTimeoutMs" in refused.error_message
    beat |= {"rebalance_timeout": SESSION, "subscribed_topic_names": ("t",), "topic_partitions": []}
    alive = client.call("consumer_group_heartbeat", version, **beat)
    assert (alive.error_code, alive.member_id, alive.member_epoch) == (0, "me", 1)
    assert alive.assignment.topic_partitions[0].partitions == (0, 1)
    described = client.call("consumer_group_describe", version, group_ids=(group, "nothing"))
    known, unknown = described.groups
    assert (known.group_state, known.assignor_name, known.group_epoch) == ("Stable", "uniform", 1)
    assert known.members[0].assignment.topic_partitions[0].topic_name == "t"
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_can_subscribe_by_expression(client: RawClient, group: str) -> None:
    beat = {"group_id": group, "member_id": "me", "member_epoch": 0, "rebalance_timeout": SESSION}
    beat |= {"topic_partitions": [], "subscribed_topic_regex": "("}
    assert (
        client.call("consumer_group_heartbeat", 1, **beat).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    alive = client.call("consumer_group_heartbeat", 1, **{**beat, "subscribed_topic_regex": "^t$"})
    assert alive.assignment.topic_partitions[0].partitions == (0, 1)
