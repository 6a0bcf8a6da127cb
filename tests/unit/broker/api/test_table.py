"""The table of APIs: every API has a row, its handler gets what it takes, and permissions are asked for."""

import asyncio
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.api.permissions import AllowAll, Needs, TopicName
from millstream.broker.api.served import make_handler
from millstream.broker.api.table import TABLE, ApiRow, ListenerKind, served_at
from millstream.doors.access import Operation, Permission, Resource
from millstream.doors.caller import Caller
from millstream.protocol.api import (
    APIS,
    LOG_CHECKSUM,
    LOG_FAULTS,
    OWN_APIS,
    PEER_APIS,
    PEER_CLIENT,
    PEER_FOUNDING,
)
from millstream.protocol.api_table import kafka_name
from millstream.protocol.codec import decode_request
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.protocol.metadata import MetadataRequest, WantedTopic
from millstream.protocol.offset_commit import CommitRequest, PartitionCommit, TopicCommit
from millstream.protocol.produce import PartitionRecords, ProduceRequest, TopicRecords
from millstream.protocol.wire import NULL_UUID
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.kio_messages import build, encode
from support.raw_client import RawClient, batch_of, create_topic, produce_fields

BY_NAME = {row.api.name: row for row in TABLE.values()}
ID = UUID(int=7)
# Kafka's own, of brokers among themselves.
OF_BROKERS = {name for name in BY_NAME if name.endswith(("_share_group_state", "_share_group_state_summary"))}
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


@pytest.fixture(scope="module")
def node() -> Iterator[InProcessNode]:
    with node_on(SimulatedDisk()) as node:
        yield node


def test_every_api_has_one_row() -> None:
    assert TABLE.keys() == APIS.keys() | PEER_APIS.keys() | OWN_APIS.keys()
    assert all(row.api is (APIS | PEER_APIS | OWN_APIS)[key] for key, row in TABLE.items())


def test_nodes_apis_are_served_at_their_own_listeners() -> None:
    # Our own tools come to the port for clients; what only nodes may say there, its handlers refuse.
    tools = {PEER_CLIENT, PEER_FOUNDING, LOG_CHECKSUM, LOG_FAULTS}
    assert served_at(ListenerKind.CLIENTS) == APIS.keys() | OWN_APIS.keys() | tools
    assert served_at(ListenerKind.NODES) == TABLE.keys()


def _in_loop(node: InProcessNode, work: Callable[[], Any]) -> Any:
    async def call() -> Any:
        return work()

    return asyncio.run_coroutine_threadsafe(call(), node.loop).result(120)


@pytest.mark.parametrize("row", TABLE.values(), ids=lambda row: row.api.name)
def test_a_handler_gets_the_collaborators_that_it_takes(row: ApiRow, node: InProcessNode) -> None:
    """On a node that is alone, so what stands for the cluster's membership is None."""
    parts = _in_loop(node, lambda: node.broker.dispatcher._collaborators(row.api.name))
    handler = make_handler(row, lambda _: parts)
    made = handler.func if hasattr(handler, "func") else type(handler).__init__
    hints = typing.get_type_hints(made)
    names = [name for name in inspect.signature(made).parameters if name != "self"]
    assert len(names) >= len(parts)
    for name, part in zip(names, parts, strict=False):
        assert _fits(part, hints[name]), name


def _fits(part: Any, hint: Any) -> bool:
    if typing.get_origin(hint) is not None and callable(part):
        return True
    kinds = [each for each in typing.get_args(hint) or (hint,) if isinstance(each, type)]
    # A protocol cannot be asked for; mypy knows.
    return any(getattr(each, "_is_protocol", False) or isinstance(part, each) for each in kinds)


def name_of(topic_id: UUID) -> str | None:
    return "by-id" if topic_id == ID else None


def asked(name: str, version: int | None = None, **fields: Any) -> set[tuple[Operation, Resource, str]]:
    """What a request needs, as it comes over the wire."""
    api = BY_NAME[name].api
    version = api.max_version if version is None else version
    request = decode_request(api, version, memoryview(encode(build(name, version, **fields))))
    return needed(name, request)


def needed(name: str, request: Any) -> set[tuple[Operation, Resource, str]]:
    found = list(BY_NAME[name].needs(request, name_of))
    return {(each.operation, each.resource, each.name) for each in found}


def of_topics(operation: Operation, *names: str) -> set[tuple[Operation, Resource, str]]:
    return {(operation, Resource.TOPIC, name) for name in names}


def of_group(operation: Operation, *names: str) -> set[tuple[Operation, Resource, str]]:
    return {(operation, Resource.GROUP, name) for name in names}


def of_cluster(operation: Operation) -> set[tuple[Operation, Resource, str]]:
    return {(operation, Resource.CLUSTER, Permission(operation, Resource.CLUSTER).name)}


def test_reading_and_writing_need_a_permission_for_each_topic_by_name_or_id() -> None:
    produce = ProduceRequest(
        None, -1, 1, [TopicRecords("a", [PartitionRecords(0, None)]), TopicRecords(ID.bytes, [])]
    )
    assert needed("produce", produce) == of_topics(WRITE, "a", "by-id")
    transactional = {(WRITE, Resource.TRANSACTIONAL_ID, "tx")}
    assert needed("produce", produce._replace(transactional_id="tx", topics=[])) == transactional
    fetch = FetchRequest(
        -1, 0, 0, 0, 0, 0, -1, [FetchTopic(ID.bytes, [FetchPartition(0, -1, 0, -1, -1, 1)])], [], ""
    )
    assert needed("fetch", fetch) == of_topics(READ, "by-id")
    assert needed("fetch", fetch._replace(replica_id=3)) == of_cluster(ACTION)
    unknown = fetch._replace(topics=[FetchTopic(UUID(int=9).bytes, [])])
    assert needed("fetch", unknown) == set(), "the handler says that there is no such topic"
    metadata = MetadataRequest(
        [WantedTopic("a", NULL_UUID), WantedTopic(None, ID.bytes)], False, False, False
    )
    assert needed("metadata", metadata) == of_topics(DESCRIBE, "a", "by-id")
    assert needed("metadata", metadata._replace(topics=None)) == set()
    commit = CommitRequest("g", 0, "m", None, -1, [TopicCommit("a", [PartitionCommit(0, 1, -1, "")])])
    assert needed("offset_commit", commit) == of_group(READ, "g") | of_topics(READ, "a")


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("list_offsets", {"topics": [{"name": "a"}]}, of_topics(DESCRIBE, "a")),
        ("offset_for_leader_epoch", {"topics": [{"topic": "a"}]}, of_topics(DESCRIBE, "a")),
        ("describe_topic_partitions", {"topics": [{"name": "a"}]}, of_topics(DESCRIBE, "a")),
        ("create_topics", {"topics": [{"name": "a"}]}, of_topics(CREATE, "a")),
        ("create_partitions", {"topics": [{"name": "a"}]}, of_topics(ALTER, "a")),
        ("delete_records", {"topics": [{"name": "a"}]}, of_topics(DELETE, "a")),
        ("delete_topics", {"topics": [{"name": "a"}, {"topic_id": ID}]}, of_topics(DELETE, "a", "by-id")),
        ("join_group", {"group_id": "g"}, of_group(READ, "g")),
        ("sync_group", {"group_id": "g"}, of_group(READ, "g")),
        ("heartbeat", {"group_id": "g"}, of_group(READ, "g")),
        ("leave_group", {"group_id": "g"}, of_group(READ, "g")),
        (
            "consumer_group_heartbeat",
            {"group_id": "g", "subscribed_topic_names": ["a"]},
            of_group(READ, "g") | of_topics(DESCRIBE, "a"),
        ),
        ("describe_groups", {"groups": ["g", "h"]}, of_group(DESCRIBE, "g", "h")),
        ("consumer_group_describe", {"group_ids": ["g"]}, of_group(DESCRIBE, "g")),
        ("delete_groups", {"groups_names": ["g"]}, of_group(DELETE, "g")),
        ("list_groups", {}, of_cluster(DESCRIBE)),
        (
            "offset_fetch",
            {"groups": [{"group_id": "g", "topics": [{"topic_id": ID}]}]},
            of_group(DESCRIBE, "g") | of_topics(DESCRIBE, "by-id"),
        ),
        (
            "offset_delete",
            {"group_id": "g", "topics": [{"name": "a"}]},
            of_group(DELETE, "g") | of_topics(READ, "a"),
        ),
        ("find_coordinator", {"key_type": 0, "coordinator_keys": ["g"]}, of_group(DESCRIBE, "g")),
        (
            "find_coordinator",
            {"key_type": 1, "coordinator_keys": ["t"]},
            {(DESCRIBE, Resource.TRANSACTIONAL_ID, "t")},
        ),
        ("init_producer_id", {}, of_cluster(Operation.IDEMPOTENT_WRITE)),
        ("init_producer_id", {"transactional_id": "t"}, {(WRITE, Resource.TRANSACTIONAL_ID, "t")}),
        (
            "describe_configs",
            {"resources": [{"resource_type": 2, "resource_name": "a"}, {"resource_type": 4}]},
            of_topics(DESCRIBE_CONFIGS, "a") | of_cluster(DESCRIBE_CONFIGS),
        ),
        (
            "incremental_alter_configs",
            {"resources": [{"resource_type": 2, "resource_name": "a"}]},
            of_topics(ALTER_CONFIGS, "a"),
        ),
        ("alter_configs", {"resources": [{"resource_type": 4}]}, of_cluster(ALTER_CONFIGS)),
        ("elect_leaders", {}, of_cluster(ALTER)),
        ("alter_partition_reassignments", {}, of_cluster(ALTER)),
        ("list_partition_reassignments", {}, of_cluster(DESCRIBE)),
        ("describe_log_dirs", {}, of_cluster(DESCRIBE)),
        ("describe_quorum", {}, of_cluster(DESCRIBE)),
        ("describe_acls", {}, of_cluster(DESCRIBE)),
        ("create_acls", {}, of_cluster(ALTER)),
        ("delete_acls", {}, of_cluster(ALTER)),
        ("describe_client_quotas", {}, of_cluster(DESCRIBE_CONFIGS)),
        ("alter_client_quotas", {}, of_cluster(ALTER_CONFIGS)),
        ("describe_user_scram_credentials", {}, of_cluster(DESCRIBE)),
        ("alter_user_scram_credentials", {}, of_cluster(ALTER)),
        ("describe_producers", {"topics": [{"name": "a"}]}, of_topics(READ, "a")),
        (
            "describe_transactions",
            {"transactional_ids": ["t"]},
            {(DESCRIBE, Resource.TRANSACTIONAL_ID, "t")},
        ),
        ("list_transactions", {}, set()),
        ("alter_replica_log_dirs", {}, of_cluster(ALTER)),
        ("update_features", {}, of_cluster(ALTER)),
        ("unregister_broker", {}, of_cluster(ALTER)),
        ("add_raft_voter", {}, of_cluster(ALTER)),
        ("remove_raft_voter", {}, of_cluster(ALTER)),
        ("list_config_resources", {}, of_cluster(DESCRIBE_CONFIGS)),
        ("describe_cluster", {}, set()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_needs_what_kafka_asks_for(name: str, fields: Any, expected: Any) -> None:
    assert asked(name, **fields) == expected


def test_groups_of_requests_up_to_version_7_are_asked_for_too() -> None:
    old = asked("offset_fetch", 1, group_id="g", topics=[{"name": "a", "partition_indexes": [0]}])
    assert old == of_group(DESCRIBE, "g") | of_topics(DESCRIBE, "a")


def test_what_nodes_say_to_each_other_needs_the_power_of_a_node() -> None:
    keys = PEER_APIS.keys() | {BY_NAME[name].api.key for name in OF_BROKERS}
    for key in keys:
        assert set(TABLE[key].needs(None, name_of)) == {Permission(ACTION, Resource.CLUSTER)}


class Strict(AllowAll):
    """Allows nothing, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Permission]] = []

    def check_request(self, caller: Caller, needs: Needs, request: Any, name: TopicName) -> None:
        for permission in needs(request, name):
            self.asked.append((str(caller.principal), caller.client_id, permission))
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{permission.name} is not for you")


def test_dispatch_asks_the_authoriser_before_the_handler(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawClient(node.listen) as client:
        topic = create_topic(client, "guarded")
        strict = Strict()
        monkeypatch.setattr(node.broker.dispatcher, "_authoriser", strict)
        groups = client.call("list_groups", 5)
        assert groups.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        fetched = client.call("fetch", 12, topics=[{"topic": topic, "partitions": [{"partition": 0}]}])
        assert (fetched.error_code, fetched.responses) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ())
        client.send("produce", 9, **produce_fields(topic, batch_of(b"x")))
        assert client.is_closed_by_broker(), "Produce has no place for an error of the whole request"
    assert [each[2] for each in strict.asked] == [
        Permission(DESCRIBE, Resource.CLUSTER),
        Permission(READ, Resource.TOPIC, topic),
        Permission(WRITE, Resource.TOPIC, topic),
    ]
    assert {each[:2] for each in strict.asked} == {("User:ANONYMOUS", "raw")}


@pytest.mark.parametrize(
    "row",
    [row for row in TABLE.values() if row.handler.startswith("handlers.")],
    ids=lambda row: row.api.name,
)
def test_a_file_of_handlers_opens_with_its_apis_and_versions(row: ApiRow) -> None:
    module = importlib.import_module(f"millstream.broker.{row.handler.partition(':')[0]}")
    opening = " ".join((module.__doc__ or "").split())
    first, last = row.api.min_version, row.api.max_version
    versions = f"version {last}" if first == last else f"versions {first} to {last}"
    # Names of other APIs may stand between, where several have the same versions.
    assert re.search(rf"\b{kafka_name(row.api)}((, | and )[A-Z]\w+)*, {versions}(?! to)", opening), opening
