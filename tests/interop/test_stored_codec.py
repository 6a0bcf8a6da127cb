"""compression.type: batches are stored in the topic's codec, whatever the producer chose."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.clients.kinds import EVERY_CLIENT, Clients
from support.clients.message import Message
from support.node import NodeProcess
from support.stored_batches import stored_batches, stored_codecs

MESSAGES = [
    Message(b"some value %d " % number * 10, b"key", (("header", b"1"), ("header", b"2")))
    for number in range(100)
]


@pytest.mark.parametrize("sent", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_in_the_topics_codec(
    clients: Clients, broker: NodeProcess, topic_with: Callable[..., str], sent: str, stored: str
) -> None:
    topic = topic_with(compression_type=stored)
    clients.confluent.write(topic, MESSAGES, codec=sent)
    assert stored_codecs(broker.partition_dir(topic)) == {"none" if stored == "uncompressed" else stored}
    for reader in clients.readers():
        assert [each.content for each in reader.read(topic)] == MESSAGES


@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_what_every_writer_sends_is_converted(
    clients: Clients, broker: NodeProcess, topic_with: Callable[..., str], writer: str
) -> None:
    topic = topic_with(compression_type="zstd", message_timestamp_type="LogAppendTime")
    clients[writer].write(topic, MESSAGES, codec="gzip")
    assert stored_codecs(broker.partition_dir(topic)) == {"zstd"}
    for reader in clients.readers():
        assert [each.content for each in reader.read(topic)] == MESSAGES


def test_the_codec_may_change_and_old_batches_stay_readable(
    clients: Clients, broker: NodeProcess, admin: AdminClient, topic: str
) -> None:
    codecs = ["gzip", "zstd", "uncompressed", "producer"]
    for codec in codecs:
        entry = ConfigEntry("compression.type", codec, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(90)
        clients.confluent.write(topic, MESSAGES, codec="snappy", linger_ms=100)
    stored = [batch.codec for batch in stored_batches(broker.partition_dir(topic))]
    assert list(dict.fromkeys(stored)) == ["gzip", "zstd", "none", "snappy"]
    for reader in clients.readers():
        assert [each.content for each in reader.read(topic)] == MESSAGES * len(codecs)


@pytest.mark.parametrize("writer", ["confluent", "kafka-python", "aiokafka"])
def test_idempotent_batches_keep_their_producer_when_they_are_converted(
    clients: Clients, broker: NodeProcess, topic_with: Callable[..., str], writer: str
) -> None:
    topic = topic_with(compression_type="lz4")
    clients[writer].write(topic, MESSAGES, codec="gzip", enable_idempotence=True)
    batches = stored_batches(broker.partition_dir(topic))
    assert all(batch.producer_id >= 0 for batch in batches)
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]
