"""Old segments go by size and by time, and clients find the log's new start."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.clients.kinds import Clients
from support.clients.message import PATIENCE_S, Message
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

MESSAGE = Message(b"x" * 1000)


@pytest.fixture(scope="module")
def tidy_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(
        tmp_path_factory.mktemp("tidy"), settings={"storage.retention_check_interval": "50ms"}
    ).start()
    try:
        yield node
        node.stop()
    finally:
        node.close()


@pytest.fixture(scope="module")
def clients(tidy_node: NodeProcess) -> Iterator[Clients]:
    with Clients(tidy_node.bootstrap) as made:
        yield made


@pytest.fixture(scope="module")
def admin(tidy_node: NodeProcess) -> AdminClient:
    return admin_for(tidy_node.bootstrap)


def watermarks(clients: Clients, topic: str) -> tuple[int, int]:
    consumer = clients.confluent.consumer()
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    finally:
        consumer.close()
    return low, high


def write_one_by_one(clients: Clients, topic: str, count: int) -> None:
    for _ in range(count):
        clients.confluent.write(topic, [MESSAGE])


def test_a_log_over_its_size_loses_its_oldest_segments(
    clients: Clients, admin: AdminClient, tidy_node: NodeProcess, new_topic: Callable[[], str]
) -> None:
    """Segments of two messages: the oldest goes while what is left after it is still larger than the limit."""
    configs = {"segment.bytes": 2200, "retention.bytes": 5500, "file.delete.delay.ms": 0}
    topic = create_topic(admin, new_topic(), configs=configs)
    write_one_by_one(clients, topic, 20)
    low, high = wait_for(lambda: watermarks(clients, topic), lambda marks: marks[0] >= 14, "old segments go")
    assert (low, high) == (14, 20)
    for reader in clients.readers():
        assert [each.offset for each in reader.read(topic)] == list(range(14, 20))
    names = wait_for(
        lambda: sorted(file.name for file in tidy_node.partition_dir(topic).glob("*.log*")),
        lambda names: not any(name.endswith(".deleted") for name in names),
        "deleted files are removed",
    )
    assert names == [f"{offset:020}.log" for offset in (14, 16, 18)]


def test_messages_past_their_time_go_even_from_the_last_segment(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(admin, new_topic(), configs={"retention.ms": 1000})
    write_one_by_one(clients, topic, 3)
    assert wait_for(lambda: watermarks(clients, topic), lambda marks: marks[0] == 3, "all go") == (3, 3)
    for reader in clients.readers():
        assert reader.read(topic) == []
    # Not by reading: this one, too, goes after a second.
    assert clients.confluent.write(topic, [Message(b"new")]) == [3]


def test_time_is_that_of_the_messages(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(admin, new_topic(), configs={"segment.bytes": 100, "retention.ms": 3_600_000})
    clients.confluent.write(topic, [Message(b"from 1970", timestamp_ms=1000)])
    clients.confluent.write(topic, [Message(b"from today")])
    clients.confluent.write(topic, [Message(b"from today")])
    assert wait_for(lambda: watermarks(clients, topic), lambda marks: marks[0] == 1, "the old goes") == (1, 3)


def test_a_shortened_retention_takes_effect(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(admin, new_topic(), configs={"segment.bytes": 2200})
    write_one_by_one(clients, topic, 10)
    assert watermarks(clients, topic) == (0, 10)
    entry = ConfigEntry("retention.bytes", "2500", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    assert wait_for(lambda: watermarks(clients, topic), lambda marks: marks[0] > 0, "old go") == (6, 10)


def test_deleted_records_stay_deleted_over_restarts(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    admin = admin_for(node.bootstrap)
    create_topic(admin, "topic", configs={"segment.bytes": 2200})
    with Clients(node.bootstrap) as clients:
        write_one_by_one(clients, "topic", 10)
    place = TopicPartition("topic", 0, 5)
    admin.delete_records([place])[place].result(PATIENCE_S)
    for restart in (node.crash_and_restart, node.restart):
        restart()
        with Clients(node.bootstrap) as clients:
            assert watermarks(clients, "topic") == (5, 10)
            assert [each.offset for each in clients.kafka_python.read("topic")] == [5, 6, 7, 8, 9]
