"""Topics that come to be when a client first asks for them, where the node allows it."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaTimeoutError

from support.clients.kinds import EVERY_CLIENT, LIBRARIES, Clients
from support.clients.message import PATIENCE_S, Message, ProduceFailed
from support.node import NodeProcess
from support.topics import admin_for

QUICK_FAILURE = {
    "confluent": {"message_timeout_ms": 1000},
    "kafka-python": {"max_block_ms": 1000},
    "aiokafka": {"request_timeout_ms": 4000},  # also the time it has to connect
}
REFUSALS = {
    "confluent": ProduceFailed,
    "kafka-python": KafkaTimeoutError,
    "aiokafka": ProduceFailed,
}


@pytest.fixture(scope="module")
def strict_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"broker.auto_create_topics": "false"}
    node = NodeProcess(tmp_path_factory.mktemp("strict"), settings=settings).start()
    yield node
    node.close()


@pytest.mark.parametrize("client", EVERY_CLIENT)
def test_writing_creates_the_topic(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str], client: str
) -> None:
    name = new_topic()
    clients[client].write(name, [Message(b"first")])
    assert [each.value for each in clients[client].read(name)] == [b"first"]
    assert len(admin.list_topics(name, PATIENCE_S).topics[name].partitions) == 1


def test_new_topics_have_the_default_number_of_partitions(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node(settings={"broker.default_partitions": "5"})
    with Clients(node.bootstrap) as clients:
        clients.confluent.write("topic", [Message(b"v")])
        topics = admin_for(node.bootstrap).list_topics(timeout=PATIENCE_S).topics
    assert len(topics["topic"].partitions) == 5


@pytest.mark.parametrize("allowed", [False, True])
def test_a_consumer_creates_only_where_it_says_so(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str], allowed: bool
) -> None:
    name = new_topic()
    consumer = clients.confluent.consumer(allow_auto_create_topics=allowed)
    try:
        error = consumer.list_topics(name, PATIENCE_S).topics[name].error
    finally:
        consumer.close()
    assert (error is None) == allowed
    assert (name in admin.list_topics(timeout=PATIENCE_S).topics) == allowed


def test_a_name_that_no_topic_can_have_is_refused_at_once(clients: Clients) -> None:
    with pytest.raises(ProduceFailed) as refused:
        clients.confluent.write("not a name", [Message(b"v")])
    assert refused.value.code == "INVALID_TOPIC_EXCEPTION"


@pytest.mark.parametrize("client", LIBRARIES)
def test_a_node_told_not_to_creates_nothing(strict_node: NodeProcess, client: str) -> None:
    name = f"topic-for-{client}"
    admin = admin_for(strict_node.bootstrap)
    with Clients(strict_node.bootstrap) as clients, pytest.raises(REFUSALS[client]):
        clients[client].write(name, [Message(b"v")], **QUICK_FAILURE[client])
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics
    asked = admin.list_topics(name, PATIENCE_S).topics[name]
    assert asked.error is not None
    assert asked.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
