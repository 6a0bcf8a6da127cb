"""aiokafka's admin client, which speaks old versions of the admin calls."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError

from millstream.protocol.errors import ErrorCode
from support.clients.kinds import Clients
from support.clients.message import Message
from support.node import NodeProcess

T = TypeVar("T")
Run = Callable[[Callable[[Any], Awaitable[T]]], T]


@pytest.fixture
def with_admin(broker: NodeProcess) -> Run[Any]:
    """Runs what is done with an admin client: `with_admin(lambda admin: admin.list_topics())`."""

    async def run(work: Callable[[Any], Awaitable[Any]]) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    return lambda work: asyncio.run(run(work))


def names_of(errors: Any) -> dict[str, str]:
    """Topic and error of each, from answers whose further fields differ."""
    return {name: ErrorCode(code).name for name, code, *_ in errors}


async def configs_of(admin: Any, kind: ConfigResourceType, name: str) -> dict[str, str | None]:
    (answer,) = await admin.describe_configs([ConfigResource(kind, name)])
    ((code, _, _, _, entries),) = answer.resources
    assert code == 0
    return {key: value for key, value, *_ in entries}


def test_topics_are_created_listed_described_and_deleted(
    with_admin: Run[Any], topic: str, new_topic: Callable[[], str]
) -> None:
    name, bad = new_topic(), new_topic()

    async def work(admin: Any) -> None:
        wanted = [
            NewTopic(name, 2, 1, topic_configs={"retention.ms": "777"}),
            NewTopic(topic, 1, 1),
            NewTopic(bad, 1, 5),
        ]
        created = await admin.create_topics(wanted)
        assert names_of(created.topic_errors) == {
            name: "NONE",
            topic: "TOPIC_ALREADY_EXISTS",
            bad: "INVALID_REPLICATION_FACTOR",
        }
        assert name in await admin.list_topics()
        (described,) = await admin.describe_topics([name])
        assert [(p["partition"], p["leader"], p["isr"]) for p in described["partitions"]] == [
            (0, 1, [1]),
            (1, 1, [1]),
        ]
        assert (await configs_of(admin, ConfigResourceType.TOPIC, name))["retention.ms"] == "777"
        deleted = await admin.delete_topics([name, bad])
        assert names_of(deleted.topic_error_codes) == {name: "NONE", bad: "UNKNOWN_TOPIC_OR_PARTITION"}
        assert name not in await admin.list_topics()

    with_admin(work)


def test_validate_only_changes_nothing(
    with_admin: Run[Any], topic: str, new_topic: Callable[[], str]
) -> None:
    name = new_topic()

    async def work(admin: Any) -> None:
        checked = await admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)
        assert names_of(checked.topic_errors) == {name: "NONE"}
        assert name not in await admin.list_topics()
        await admin.create_partitions({topic: NewPartitions(4)}, validate_only=True)
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 1

    with_admin(work)


def test_partitions_are_added(with_admin: Run[Any], topic: str, new_topic: Callable[[], str]) -> None:
    missing = new_topic()

    async def work(admin: Any) -> None:
        with pytest.raises(UnknownTopicOrPartitionError, match=missing):
            await admin.create_partitions({topic: NewPartitions(3), missing: NewPartitions(2)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3

    with_admin(work)


def test_configs_are_altered_as_a_whole(with_admin: Run[Any], topic: str) -> None:
    async def work(admin: Any) -> None:
        for configs in ({"retention.ms": "5", "segment.ms": "6"}, {"segment.ms": "7"}):
            (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
            assert [each[0] for each in answer.resources] == [0]
        now = await configs_of(admin, ConfigResourceType.TOPIC, topic)
        assert (now["retention.ms"], now["segment.ms"]) == ("604800000", "7")
        wrong = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "never"})
        (answer,) = await admin.alter_configs([wrong])
        assert [ErrorCode(each[0]).name for each in answer.resources] == ["INVALID_CONFIG"]

    with_admin(work)


def test_the_brokers_configs_are_described(with_admin: Run[Any], broker: NodeProcess) -> None:
    configs = with_admin(lambda admin: configs_of(admin, ConfigResourceType.BROKER, "1"))
    assert configs["log.dir"] == str(broker.data_dir)


def test_the_cluster_is_described(with_admin: Run[Any], broker: NodeProcess) -> None:
    cluster = with_admin(lambda admin: admin.describe_cluster())
    (node,) = cluster["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.bootstrap
    assert cluster["controller_id"] == node["node_id"] == 1


def test_records_are_deleted(with_admin: Run[Any], clients: Clients, topic: str) -> None:
    clients.aiokafka.write(topic, [Message(b"%d" % number) for number in range(10)])
    place = TopicPartition(topic, 0)
    low = with_admin(lambda admin: admin.delete_records({place: RecordsToDelete(before_offset=8)}))
    assert low == {place: 8}
    assert [each.offset for each in clients.aiokafka.read(topic)] == [8, 9]
    with pytest.raises(OffsetOutOfRangeError):
        with_admin(lambda admin: admin.delete_records({place: RecordsToDelete(before_offset=11)}))
