"""kafka-python's admin client, which speaks the newest versions of the admin calls."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidPartitionsError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer import OffsetSpec

from millstream.protocol.errors import ErrorCode
from support.clients.kinds import Clients
from support.clients.message import Message
from support.node import NodeProcess


@pytest.fixture(scope="module")
def kp_admin(broker: NodeProcess) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def configs_of(admin: Any, kind: ConfigResourceType, name: str, **options: Any) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    described = admin.describe_configs([resource], config_filter="all", **options)
    configs: dict[str, Any] = described[kind.name.lower()][name]
    return configs


def test_a_topic_is_created_with_all_its_settings_in_the_answer(
    kp_admin: Any, new_topic: Callable[[], str]
) -> None:
    name = new_topic()
    options = {"num_partitions": 2, "replication_factor": 1, "configs": {"segment.ms": "60000"}}
    (created,) = kp_admin.create_topics({name: options}, wait_for_metadata=True)["topics"]
    assert (created["name"], created["error_code"], created["num_partitions"]) == (name, 0, 2)
    assert created["replication_factor"] == 1
    assert created["configs"]["segment.ms"]["value"] == "60000"
    assert created["configs"]["segment.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert created["configs"]["retention.ms"]["config_source"] == "DEFAULT_CONFIG"
    assert name in kp_admin.list_topics()
    (described,) = kp_admin.describe_topics([name])
    assert described["topic_id"] == created["topic_id"]
    assert [p["partition_index"] for p in described["partitions"]] == [0, 1]
    (by_id,) = kp_admin.describe_topics([UUID(created["topic_id"])])
    assert by_id["name"] == name


def test_names_alone_get_the_defaults(kp_admin: Any, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    (created,) = kp_admin.create_topics([name])["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (1, 1)
    with pytest.raises(TopicAlreadyExistsError):
        kp_admin.create_topics([name])


def test_each_topic_of_a_request_succeeds_or_fails_by_itself(
    kp_admin: Any, topic: str, new_topic: Callable[[], str]
) -> None:
    good, bad = new_topic(), new_topic()
    wanted = {good: {}, topic: {}, bad: {"num_partitions": -5}, "..": {}}
    answered = kp_admin.create_topics(wanted, raise_errors=False)["topics"]
    assert {each["name"]: ErrorCode(each["error_code"]).name for each in answered} == {
        good: "NONE",
        topic: "TOPIC_ALREADY_EXISTS",
        bad: "INVALID_PARTITIONS",
        "..": "INVALID_TOPIC_EXCEPTION",
    }
    assert all(each["error_message"] for each in answered if each["error_code"])
    deleted = kp_admin.delete_topics([good, bad], raise_errors=False)["topics"]
    assert {each["name"]: ErrorCode(each["error_code"]).name for each in deleted} == {
        good: "NONE",
        bad: "UNKNOWN_TOPIC_OR_PARTITION",
    }


def test_topics_are_deleted_by_id(kp_admin: Any, topic: str) -> None:
    (described,) = kp_admin.describe_topics([topic])
    topic_id = UUID(described["topic_id"])
    kp_admin.delete_topics([topic_id])
    assert topic not in kp_admin.list_topics()
    (gone,) = kp_admin.delete_topics([topic_id], raise_errors=False)["topics"]
    assert ErrorCode(gone["error_code"]) == ErrorCode.UNKNOWN_TOPIC_ID


def test_validate_only_changes_nothing(kp_admin: Any, topic: str, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    (checked,) = kp_admin.create_topics({name: {"num_partitions": 7}}, validate_only=True)["topics"]
    assert checked["num_partitions"] == 7
    assert name not in kp_admin.list_topics()
    kp_admin.create_partitions({topic: 3}, validate_only=True)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1"})
    assert kp_admin.alter_configs([resource], validate_only=True) == {"topic": {topic: "OK"}}
    assert configs_of(kp_admin, ConfigResourceType.TOPIC, topic)["retention.ms"]["value"] == "604800000"
    (described,) = kp_admin.describe_topics([topic])
    assert len(described["partitions"]) == 1


def test_partitions_are_added(kp_admin: Any, topic: str, new_topic: Callable[[], str]) -> None:
    kp_admin.create_partitions({topic: {"count": 3, "assignments": [[1], [1]]}})
    (described,) = kp_admin.describe_topics([topic])
    assert [(p["partition_index"], p["leader_id"]) for p in described["partitions"]] == [
        (0, 1),
        (1, 1),
        (2, 1),
    ]
    with pytest.raises(InvalidPartitionsError):
        kp_admin.create_partitions({topic: 1})
    with pytest.raises(UnknownTopicOrPartitionError):
        kp_admin.create_partitions({new_topic(): 1})


def test_configs_are_changed_and_show_where_they_come_from(kp_admin: Any, topic: str) -> None:
    changes = {"retention.ms": ("SET", "5000"), "cleanup.policy": ("APPEND", "compact")}
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, changes)
    assert kp_admin.alter_configs([resource]) == {"topic": {topic: "OK"}}
    configs = configs_of(kp_admin, ConfigResourceType.TOPIC, topic, include_synonyms=True)
    retention = configs["retention.ms"]
    assert (retention["value"], retention["config_source"]) == ("5000", "DYNAMIC_TOPIC_CONFIG")
    assert [(each["name"], each["source"]) for each in retention["synonyms"]] == [
        ("retention.ms", "DYNAMIC_TOPIC_CONFIG"),
        ("log.retention.ms", "DEFAULT_CONFIG"),
    ]
    assert retention["config_type"] == "LONG"
    assert configs["cleanup.policy"]["value"] == "delete,compact"
    kp_admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})])
    configs = configs_of(kp_admin, ConfigResourceType.TOPIC, topic)
    assert configs["retention.ms"]["config_source"] == "DEFAULT_CONFIG"
    assert configs["cleanup.policy"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"


def test_the_old_call_replaces_all_configs(kp_admin: Any, topic: str) -> None:
    for changes in ({"retention.ms": "5000"}, {"segment.ms": "6000"}):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, changes)
        # kafka-python adds what is set already to such a request, so both are set in the end.
        assert kp_admin.alter_configs([resource], incremental=False) == {"topic": {topic: "OK"}}
    modified = kp_admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
    assert {name: config["value"] for name, config in modified.items()} == {
        "retention.ms": "5000",
        "segment.ms": "6000",
    }


def test_a_wrong_config_is_refused_with_its_name(kp_admin: Any, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": "-3"})
    answer = kp_admin.alter_configs([resource])["topic"][topic]
    assert "segment.bytes" in answer
    with pytest.raises(ValueError, match=r"no\.such\.config"):
        kp_admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"no.such.config": "1"})])


def test_resources_with_configs_are_listed(kp_admin: Any, topic: str) -> None:
    listed = kp_admin.list_config_resources()
    assert topic in listed["topic"]
    assert listed["broker"] == ["1"]
    assert kp_admin.list_config_resources(["BROKER"]) == {"broker": ["1"]}


def test_the_cluster_is_described(kp_admin: Any, broker: NodeProcess) -> None:
    cluster = kp_admin.describe_cluster()
    assert cluster["controller_id"] == 1
    (node,) = cluster["brokers"]
    assert (node["broker_id"], f"{node['host']}:{node['port']}") == (1, broker.bootstrap)
    assert not node["is_fenced"]


def test_records_are_deleted_and_offsets_listed(kp_admin: Any, clients: Clients, topic: str) -> None:
    clients.kafka_python.write(topic, [Message(b"%d" % number) for number in range(10)])
    place = TopicPartition(topic, 0)
    assert kp_admin.delete_records({place: 6})[place]["low_watermark"] == 6
    assert kp_admin.list_partition_offsets({place: OffsetSpec.EARLIEST})[place].offset == 6
    assert kp_admin.list_partition_offsets({place: OffsetSpec.EARLIEST_LOCAL})[place].offset == 6
    latest = kp_admin.list_partition_offsets({place: OffsetSpec.LATEST})[place]
    assert (latest.offset, latest.leader_epoch) == (10, 0)
    assert kp_admin.list_partition_offsets({place: OffsetSpec.LATEST_TIERED})[place].offset == -1
    assert [each.offset for each in clients.kafka_python.read(topic)] == [6, 7, 8, 9]
    with pytest.raises(OffsetOutOfRangeError):
        kp_admin.delete_records({place: 11})


def test_log_dirs_show_the_bytes_of_each_partition(
    kp_admin: Any, clients: Clients, broker: NodeProcess, topic: str
) -> None:
    clients.kafka_python.write(topic, [Message(b"x" * 1000)])
    (answer,) = kp_admin.describe_log_dirs({topic: [0]})
    assert answer["broker"] == 1
    (directory,) = answer["log_dirs"]
    assert (directory["error_code"], directory["log_dir"]) == (0, str(broker.data_dir))
    ((described,),) = [each["partitions"] for each in directory["topics"]]
    size = sum(file.stat().st_size for file in broker.partition_dir(topic).glob("*.log"))
    assert described["partition_size"] == size
    assert directory["usable_bytes"] > 0


def test_partitions_are_described_page_by_page(kp_admin: Any, topic_with: Callable[..., str]) -> None:
    names = sorted(topic_with(partitions=3) for _ in range(2))
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        page = kp_admin.describe_topic_partitions(names, response_partition_limit=2, cursor=cursor)
        seen += [(each["name"], p["partition_index"]) for each in page["topics"] for p in each["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [(name, partition) for name in names for partition in range(3)]
