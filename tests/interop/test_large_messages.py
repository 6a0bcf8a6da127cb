"""Messages up to max.message.bytes are taken, larger ones are refused with the error each client knows."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.clients.kinds import EVERY_CLIENT, LIBRARIES, Clients
from support.clients.message import PATIENCE_S, Message, ProduceFailed
from support.node import NodeProcess
from support.stored_batches import stored_batches
from support.waiting import wait_for

DEFAULT_LIMIT = 1088 << 10
# A batch of one record without key and headers: 61 bytes of batch header, then lengths and deltas of the record.
OVERHEAD = 74


@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_the_limit_is_exact(clients: Clients, broker: NodeProcess, topic: str, writer: str) -> None:
    largest = Message(b"x" * (DEFAULT_LIMIT - OVERHEAD))
    clients[writer].write(topic, [largest])
    assert [batch.size_bytes for batch in stored_batches(broker.partition_dir(topic))] == [DEFAULT_LIMIT]
    with pytest.raises(ProduceFailed) as refused:
        clients[writer].write(topic, [Message(b"x" * (DEFAULT_LIMIT - OVERHEAD + 1))])
    assert refused.value.code == "MESSAGE_TOO_LARGE"
    for reader in clients.readers():
        assert [each.content for each in reader.read(topic)] == [largest]


@pytest.mark.parametrize("writer", LIBRARIES)
def test_a_topic_may_take_far_larger_messages(
    clients: Clients, topic_with: Callable[..., str], writer: str
) -> None:
    """Ten megabytes are more than consumers ask for at once; the first message of a fetch comes anyway."""
    topic = topic_with(max_message_bytes=20_000_000)
    messages = [Message(bytes([number]) * 10_000_000, b"%d" % number) for number in range(2)]
    clients[writer].write(topic, messages)
    for reader in clients.readers():
        assert [each.content for each in reader.read(topic)] == messages


@pytest.mark.parametrize("writer", LIBRARIES)
def test_the_limit_counts_compressed_bytes(clients: Clients, topic: str, writer: str) -> None:
    message = Message(b"compressible " * 300_000)
    clients[writer].write(topic, [message], codec="gzip")
    for reader in clients.readers():
        assert [each.content for each in reader.read(topic)] == [message]


@pytest.mark.parametrize("writer", LIBRARIES)
def test_one_message_too_large_leaves_those_around_it_alone(
    clients: Clients, topic_with: Callable[..., str], writer: str
) -> None:
    topic = topic_with(max_message_bytes=2000)
    clients[writer].write(topic, [Message(b"before")])
    with pytest.raises(ProduceFailed) as refused:
        clients[writer].write(topic, [Message(b"x" * 3000)])
    assert refused.value.code == "MESSAGE_TOO_LARGE"
    clients[writer].write(topic, [Message(b"after")])
    assert [each.value for each in clients[writer].read(topic)] == [b"before", b"after"]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_with_batches_under_way_loses_only_those_too_large(
    clients: Clients, topic_with: Callable[..., str], idempotent: bool
) -> None:
    """A refused batch leaves a gap in the sequence of an idempotent producer; librdkafka starts a new one."""
    topic = topic_with(max_message_bytes=2000)
    producer = clients.confluent.producer(enable_idempotence=idempotent, linger_ms=0, batch_num_messages=1)
    too_large = {5, 6, 12}
    outcomes: list[tuple[int, bool]] = []
    for number in range(20):
        producer.produce(
            topic,
            b"x" * 3000 if number in too_large else b"%d" % number,
            b"%d" % number,
            on_delivery=lambda error, message: outcomes.append((int(message.key()), error is None)),
        )
    assert producer.flush(PATIENCE_S) == 0
    assert sorted(outcomes) == [(number, number not in too_large) for number in range(20)]
    stored = clients.confluent.read(topic)
    assert [each.value for each in stored] == [b"%d" % n for n in range(20) if n not in too_large]


@pytest.mark.parametrize("writer", LIBRARIES)
def test_without_acks_a_refused_message_costs_a_connection_and_nothing_else(
    clients: Clients, topic_with: Callable[..., str], writer: str
) -> None:
    """A closed connection is all that Kafka, too, can tell such a producer."""
    topic = topic_with(max_message_bytes=2000)
    clients[writer].write(topic, [Message(b"x" * 3000)], acks="0")
    clients[writer].write(topic, [Message(b"after")], acks="0")
    stored = wait_for(lambda: clients[writer].read(topic), bool, "the message that is not too large")
    assert [each.value for each in stored] == [b"after"]


@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_a_changed_limit_takes_effect_at_once(
    clients: Clients, admin: AdminClient, topic: str, writer: str
) -> None:
    message = Message(b"x" * 5000)
    clients[writer].write(topic, [message])
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(90)
    with pytest.raises(ProduceFailed) as refused:
        clients[writer].write(topic, [message])
    assert refused.value.code == "MESSAGE_TOO_LARGE"


def test_a_request_over_the_socket_limit_closes_the_connection_with_a_reason(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node(settings={"performance.max_request_size": "1MB", "performance.max_message_size": "8MB"})
    with Clients(node.bootstrap) as clients:
        clients.confluent.write("topic", [Message(b"x" * 900_000)])
        with pytest.raises(ProduceFailed) as failed:
            clients.confluent.write("topic", [Message(b"x" * 3_000_000)], message_timeout_ms=5000)
        assert failed.value.code == "_MSG_TIMED_OUT"
        assert len(clients.confluent.read("topic")) == 1
    reasons = {str(entry["reason"]) for entry in node.log_entries("connection closed")}
    assert any("socket.request.max.bytes" in reason for reason in reasons), reasons
