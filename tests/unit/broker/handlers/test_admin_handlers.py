"""The admin handlers on real metadata: every version is readable by kio, and answers are as Kafka's."""

import asyncio
import datetime
import functools
import importlib
import inspect
import io
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.alter_configs.v2 import request as alter_v2
from kio.schema.alter_partition_reassignments.v1 import request as reassign_v1
from kio.schema.create_partitions.v3 import request as create_partitions_v3
from kio.schema.create_topics.v7 import request as create_topics_v7
from kio.schema.delete_topics.v4 import request as delete_topics_v4
from kio.schema.delete_topics.v6 import request as delete_topics_v6
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4 import request as describe_configs_v4
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_topic_partitions.v0 import request as describe_partitions_v0
from kio.schema.elect_leaders.v2 import request as elect_leaders_v2
from kio.schema.incremental_alter_configs.v1 import request as incremental_v1
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.serial import entity_reader, entity_writer

from millstream.broker.addresses import ShownNode
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.service import MetadataService
from millstream.config.settings import ClusterSettings, Settings
from millstream.protocol.api import APIS, Api
from millstream.protocol.codec import decode_request, encode_response
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Disk, SystemDisk

SECOND = datetime.timedelta(seconds=1)
TOPIC, BROKER = 2, 4
API_BY_NAME = {api.name: api for api in APIS.values()}


@dataclass(frozen=True)
class Log:
    size_bytes: int = 123
    log_end_offset: int = 5


@dataclass(frozen=True)
class Partition:
    log: Log = Log()
    high_watermark: int = 5


@dataclass
class Broker:
    metadata: MetadataService
    settings: Settings
    node_id: int = 1
    disk: Disk = field(default_factory=SystemDisk)

    @property
    def partitions(self) -> "Broker":
        return self

    def get(self, topic: str, index: int, /) -> Partition | None:
        return Partition() if self.metadata.image.partition(topic, index) else None

    async def call(self, name: str, request: Any, version: int | None = None) -> Any:
        """The handler's answer, after checking that every version of it can be read."""
        api = API_BY_NAME[name]
        version = api.max_version if version is None else version
        module = importlib.import_module(f"millstream.broker.handlers.{name}")
        answer = module.handle(self, request, Context(version))
        response = await answer if inspect.iscoroutine(answer) else answer
        for each in range(api.min_version, api.max_version + 1):
            read_with_kio(api, each, response)
        return response


@dataclass(frozen=True)
class Context:
    version: int
    only_node: ShownNode | None = None


def read_with_kio(api: Api, version: int, response: Any) -> Any:
    module = importlib.import_module(f"kio.schema.{api.name}.v{version}.response")
    wanted = (api.name.replace("_", "") + "response").lower()
    entity = next(value for name, value in vars(module).items() if name.lower() == wanted)
    body = encode_response(api, version, response)
    decoded, size = entity_reader(entity)(body, 0)
    assert size == len(body)
    return decoded


@asynccontextmanager
async def running(data_dir: Path, *topics: Any, settings: Settings | None = None) -> AsyncIterator[Broker]:
    endpoints = (Endpoint("PLAINTEXT", "localhost", 9092),)
    metadata = await MetadataService.open(
        SystemDisk(), str(data_dir), node_id=1, endpoints=endpoints, rack="r1"
    )
    base = settings or Settings()
    broker = Broker(metadata, replace(base, broker=replace(base.broker, data_dir=str(data_dir))))
    if topics:
        await broker.call("create_topics", create_request(*topics))
    try:
        yield broker
    finally:
        await metadata.close()


def in_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def new_topic(name: str, partitions: int = 1, **configs: str | None) -> Any:
    return create_topics_v7.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=(),
        configs=tuple(
            create_topics_v7.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


def create_request(*topics: Any, validate_only: bool = False) -> Any:
    return create_topics_v7.CreateTopicsRequest(topics=topics, timeout=SECOND, validate_only=validate_only)


@in_loop
async def test_create_topics_answers_with_partitions_and_configs(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await broker.call("create_topics", create_request(new_topic("a", 3, retention_ms="5")))
        (topic,) = response.topics
        assert (topic.error_code, topic.error_message) == (ErrorCode.NONE, None)
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        assert topic.topic_id == broker.metadata.image.topics["a"].topic_id
        configs = {config.name: config for config in topic.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", 5)


@in_loop
async def test_a_refused_topic_still_has_an_array_of_configs(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await broker.call("create_topics", create_request(new_topic("..")))
        (topic,) = response.topics
        assert topic.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert topic.error_message
        assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, ())


@in_loop
async def test_create_topics_takes_the_nodes_defaults(tmp_path: Path) -> None:
    settings = Settings()
    settings = replace(settings, broker=replace(settings.broker, default_partitions=4))
    async with running(tmp_path, new_topic("a", -1), settings=settings) as broker:
        assert len(broker.metadata.image.topics["a"].partitions) == 4


@in_loop
async def test_the_partition_limits_are_settings(tmp_path: Path) -> None:
    settings = replace(Settings(), cluster=ClusterSettings(max_partitions=5, max_partitions_per_request=4))
    async with running(tmp_path, settings=settings) as broker:
        for partitions, code in ((5, 44), (4, 0), (2, 44), (1, 0)):
            response = await broker.call(
                "create_topics", create_request(new_topic(f"t{partitions}", partitions))
            )
            assert response.topics[0].error_code == code


@in_loop
async def test_validating_creates_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await broker.call("create_topics", create_request(new_topic("a"), validate_only=True))
        assert response.topics[0].error_code is ErrorCode.NONE
        assert broker.metadata.image.topics == {}


@in_loop
async def test_after_shutdown_every_topic_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.metadata.close()
        response = await broker.call("create_topics", create_request(new_topic("a"), new_topic("b")))
        assert [topic.error_code for topic in response.topics] == [ErrorCode.BROKER_NOT_AVAILABLE] * 2


@in_loop
async def test_delete_topics_by_name_and_by_id(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a"), new_topic("b")) as broker:
        topic_id = broker.metadata.image.topics["b"].topic_id
        state = delete_topics_v6.DeleteTopicState
        request = delete_topics_v6.DeleteTopicsRequest(
            topics=(
                state(name="a", topic_id=None),
                state(name=None, topic_id=topic_id),
                state(name="nope", topic_id=uuid.UUID(int=0)),
            ),
            timeout=SECOND,
        )
        response = await broker.call("delete_topics", request)
        assert [(each.name, each.error_code) for each in response.responses] == [
            ("a", ErrorCode.NONE),
            ("b", ErrorCode.NONE),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert broker.metadata.image.topics == {}


@in_loop
async def test_delete_topics_of_an_old_client_keeps_its_names(tmp_path: Path) -> None:
    old = delete_topics_v4.DeleteTopicsRequest(topic_names=("a",), timeout=SECOND)
    body = io.BytesIO()
    entity_writer(type(old))(body, old)
    request = decode_request(API_BY_NAME["delete_topics"], 4, memoryview(body.getvalue()))
    async with running(tmp_path, new_topic("a")) as broker:
        response = await broker.call("delete_topics", request, version=4)
        assert [(each.name, each.error_code) for each in response.responses] == [("a", ErrorCode.NONE)]


@in_loop
async def test_create_partitions_with_and_without_assignments(tmp_path: Path) -> None:
    topic, assignment = (
        create_partitions_v3.CreatePartitionsTopic,
        create_partitions_v3.CreatePartitionsAssignment,
    )
    async with running(tmp_path, new_topic("a"), new_topic("b"), new_topic("c")) as broker:
        request = create_partitions_v3.CreatePartitionsRequest(
            topics=(
                topic(name="a", count=2, assignments=None),
                topic(name="b", count=2, assignments=(assignment(broker_ids=(1,)),)),
                topic(name="c", count=1, assignments=()),
            ),
            timeout=SECOND,
            validate_only=False,
        )
        response = await broker.call("create_partitions", request)
        assert [each.error_code for each in response.results] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.INVALID_PARTITIONS,
        ]
        assert broker.metadata.image.partition_count == 5


def describe_request(resource_type: int, name: str, *keys: str, all_keys: bool = False) -> Any:
    resource = describe_configs_v4.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None if all_keys else keys
    )
    return describe_configs_v4.DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=True
    )


@in_loop
async def test_describing_a_topic_tells_where_a_value_comes_from(tmp_path: Path) -> None:
    settings = replace(Settings(), kafka={"log.retention.ms": "9"})
    async with running(tmp_path, new_topic("a", retention_ms="5"), settings=settings) as broker:
        response = await broker.call("describe_configs", describe_request(TOPIC, "a", "retention.ms"))
        (config,) = response.results[0].configs
        assert (config.value, config.config_source, config.config_type) == ("5", 1, 5)
        assert config.documentation
        assert [(each.name, each.value, each.source) for each in config.synonyms] == [
            ("retention.ms", "5", 1),
            ("log.retention.ms", "9", 4),
            ("log.retention.ms", "604800000", 5),
        ]


@in_loop
async def test_describing_everything_lists_every_topic_config(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a")) as broker:
        one = await broker.call("describe_configs", describe_request(TOPIC, "a", all_keys=True))
        empty = await broker.call("describe_configs", describe_request(TOPIC, "a"))
        assert len(one.results[0].configs) == len(empty.results[0].configs) > 20


@in_loop
async def test_describing_brokers(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.call("incremental_alter_configs", alteration(BROKER, "", ("log.retention.ms", 0, "7")))
        own = await broker.call(
            "describe_configs", describe_request(BROKER, "1", "log.retention.ms", "node.id")
        )
        found = {config.name: config for config in own.results[0].configs}
        assert (found["log.retention.ms"].value, found["log.retention.ms"].config_source) == ("7", 3)
        assert found["node.id"].read_only
        shared = await broker.call("describe_configs", describe_request(BROKER, ""))
        assert [(config.name, config.value) for config in shared.results[0].configs] == [
            ("log.retention.ms", "7")
        ]


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_describing_what_is_not_there_is_refused(
    tmp_path: Path, resource_type: int, name: str, code: ErrorCode
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            response = await broker.call("describe_configs", describe_request(resource_type, name))
            assert response.results[0].error_code is code
            assert response.results[0].configs == ()

    asyncio.run(main())


def alteration(resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = tuple(
        incremental_v1.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    )
    resource = incremental_v1.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )
    return incremental_v1.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


@in_loop
async def test_altering_incrementally_and_replacing(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a", retention_ms="5")) as broker:
        request = alteration(TOPIC, "a", ("cleanup.policy", 2, "compact"), ("segment.ms", 0, "8"))
        response = await broker.call("incremental_alter_configs", request)
        assert response.responses[0].error_code is ErrorCode.NONE
        assert broker.metadata.image.topics["a"].configs == {
            "retention.ms": "5",
            "cleanup.policy": "delete,compact",
            "segment.ms": "8",
        }
        replacement = alter_v2.AlterConfigsRequest(
            resources=(
                alter_v2.AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="a",
                    configs=(alter_v2.AlterableConfig(name="retention.ms", value="6"),),
                ),
            ),
            validate_only=False,
        )
        await broker.call("alter_configs", replacement)
        assert broker.metadata.image.topics["a"].configs == {"retention.ms": "6"}


@in_loop
async def test_a_refused_alteration_names_the_key(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a")) as broker:
        response = await broker.call(
            "incremental_alter_configs", alteration(TOPIC, "a", ("retention.msec", 0, "5"))
        )
        (refused,) = response.responses
        assert refused.error_code is ErrorCode.INVALID_CONFIG
        assert "retention.msec" in refused.error_message
        assert (refused.resource_type, refused.resource_name) == (TOPIC, "a")


@in_loop
async def test_describe_cluster(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=True, include_fenced_brokers=False
        )
        response = await broker.call("describe_cluster", request)
        assert response.cluster_id == broker.metadata.image.cluster_id
        assert response.controller_id == 1
        (only,) = response.brokers
        assert (only.broker_id, only.host, only.port, only.rack) == (1, "localhost", 9092, "r1")
        assert response.cluster_authorized_operations > 0
        response = await broker.call("describe_cluster", replace(request, endpoint_type=2))
        assert response.error_code is ErrorCode.MISMATCHED_ENDPOINT_TYPE
        response = await broker.call("describe_cluster", replace(request, endpoint_type=3))
        assert response.error_code is ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@in_loop
async def test_pages_of_partitions_cover_everything_once(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("b", 5), new_topic("a", 2), new_topic("c", 1)) as broker:
        for limit in range(1, 9):
            seen: list[tuple[str, int]] = []
            cursor = None
            for _ in range(10):
                request = describe_partitions_v0.DescribeTopicPartitionsRequest(
                    topics=(), response_partition_limit=limit, cursor=cursor
                )
                response = await broker.call("describe_topic_partitions", request)
                page = [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
                assert len(page) <= limit
                seen += page
                if response.next_cursor is None:
                    break
                cursor = describe_partitions_v0.Cursor(
                    topic_name=response.next_cursor.topic_name,
                    partition_index=response.next_cursor.partition_index,
                )
            assert seen == [("a", 0), ("a", 1), *(("b", index) for index in range(5)), ("c", 0)]


@in_loop
async def test_describe_topic_partitions_never_sends_null_where_java_throws(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a")) as broker:
        topics = tuple(describe_partitions_v0.TopicRequest(name=name) for name in ("a", "nope", "b d"))
        request = describe_partitions_v0.DescribeTopicPartitionsRequest(topics=topics)
        response = await broker.call("describe_topic_partitions", request)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", ErrorCode.NONE),
            ("b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        (partition,) = response.topics[0].partitions
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, (1,), (1,))
        bad_cursor = describe_partitions_v0.Cursor(topic_name="a", partition_index=-1)
        response = await broker.call("describe_topic_partitions", replace(request, cursor=bad_cursor))
        assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_REQUEST}


@in_loop
async def test_describe_log_dirs(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a", 2), new_topic("b")) as broker:
        response = await broker.call("describe_log_dirs", DescribeLogDirsRequest(topics=None))
        (directory,) = response.results
        assert directory.log_dir == str(tmp_path)
        assert directory.usable_bytes > 0
        assert {topic.name: len(topic.partitions) for topic in directory.topics} == {"a": 2, "b": 1}
        assert directory.topics[0].partitions[0].partition_size == 123
        chosen = DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic="a", partitions=(1, 7)),))
        response = await broker.call("describe_log_dirs", chosen)
        assert [[p.partition_index for p in topic.partitions] for topic in response.results[0].topics] == [
            [1]
        ]


@in_loop
async def test_producer_ids_are_fresh_and_transactions_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout=SECOND)
        first = await broker.call("init_producer_id", request)
        second = await broker.call("init_producer_id", replace(request, producer_id=first.producer_id))
        assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
        assert second.producer_id == first.producer_id + 1
        refused = await broker.call("init_producer_id", replace(request, transactional_id="t"))
        assert (refused.error_code, refused.producer_id) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        refused = await broker.call("init_producer_id", replace(request, transactional_id=""))
        assert refused.error_code is ErrorCode.INVALID_REQUEST


@in_loop
async def test_list_config_resources(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("b"), new_topic("a")) as broker:
        everything = await broker.call("list_config_resources", ListConfigResourcesRequest(resource_types=()))
        found = [(each.resource_type, each.resource_name) for each in everything.config_resources]
        assert found == [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1")]
        brokers = await broker.call(
            "list_config_resources", ListConfigResourcesRequest(resource_types=(BROKER,))
        )
        assert len(brokers.config_resources) == 1
        unknown = await broker.call("list_config_resources", ListConfigResourcesRequest(resource_types=(99,)))
        assert unknown.error_code is ErrorCode.UNSUPPORTED_VERSION
        old = await broker.call(
            "list_config_resources", ListConfigResourcesRequest(resource_types=()), version=0
        )
        assert old.config_resources == ()


@in_loop
async def test_many_topics_of_one_request_are_created_in_slices(tmp_path: Path) -> None:
    topics = [new_topic(f"t{number}", 40) for number in range(40)]
    async with running(tmp_path) as broker:
        changes: list[int] = []
        broker.metadata.subscribe(lambda _old, _new, records: changes.append(len(records)))
        response = await broker.call("create_topics", create_request(*topics, new_topic("..")))
        assert [topic.error_code for topic in response.topics] == [0] * 40 + [17]
        assert [topic.name for topic in response.topics[:3]] == ["t0", "t1", "t2"]
        assert len(changes) > 2
        assert broker.metadata.image.partition_count == 1600


@in_loop
async def test_the_limit_of_a_request_holds_over_all_its_slices(tmp_path: Path) -> None:
    settings = replace(Settings(), cluster=ClusterSettings(max_partitions_per_request=1000))
    topics = [new_topic(f"t{number}", 400) for number in range(3)]
    async with running(tmp_path, settings=settings) as broker:
        response = await broker.call("create_topics", create_request(*topics))
        assert [topic.error_code for topic in response.topics] == [0, 0, ErrorCode.POLICY_VIOLATION]


@in_loop
async def test_elections_and_reassignments_on_a_node_alone(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a", 2)) as broker:
        elect = elect_leaders_v2
        wanted = elect.TopicPartitions(topic="a", partitions=(0, 7))
        for topics, codes in (((wanted,), [84, 3]), (None, [])):
            request = elect.ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout=SECOND)
            response = await broker.call("elect_leaders", request)
            found = [p.error_code for t in response.replica_election_results for p in t.partition_result]
            assert (response.error_code, found) == (0, codes)
        reassign = reassign_v1
        moves = tuple(
            reassign.ReassignablePartition(partition_index=index, replicas=replicas)
            for index, replicas in ((0, (1,)), (1, (1, 2)), (2, (1,)))
        )
        request = reassign.AlterPartitionReassignmentsRequest(
            timeout=SECOND, topics=(reassign.ReassignableTopic(name="a", partitions=moves),)
        )
        response = await broker.call("alter_partition_reassignments", request)
        assert [each.error_code for each in response.responses[0].partitions] == [0, 39, 3]
        listed = await broker.call(
            "list_partition_reassignments", ListPartitionReassignmentsRequest(timeout=SECOND, topics=None)
        )
        assert listed.topics == ()


@in_loop
async def test_brokers_and_votes_that_are_not_there_cannot_go(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        with pytest.raises(KafkaError) as caught:
            await broker.call("unregister_broker", UnregisterBrokerRequest(broker_id=9))
        assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
        for cluster_id, code in ((None, 127), ("another", 104)):
            request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=9, voter_directory_id=None)
            with pytest.raises(KafkaError) as caught:
                await broker.call("remove_raft_voter", request)
            assert caught.value.code == code
        request = AddRaftVoterRequest(
            cluster_id=None, timeout=SECOND, voter_id=1, voter_directory_id=None, listeners=()
        )
        with pytest.raises(KafkaError) as caught:
            await broker.call("add_raft_voter", request)
        assert caught.value.code is ErrorCode.DUPLICATE_VOTER
