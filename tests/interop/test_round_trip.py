"""What one client writes every client reads, byte for byte, whatever the codec, the acks level and the message."""

from dataclasses import replace

import pytest

from support.clients.kinds import EVERY_CLIENT, LIBRARIES, Clients
from support.clients.message import Message, Stored
from support.node import NodeProcess
from support.stored_batches import stored_batches, stored_codecs
from support.waiting import wait_for

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
EVERY_BYTE = bytes(range(256))

# What every client, kcat included, can write. kcat splits its input at a text that is in none of these.
PLAIN = [
    Message(b"plain value", b"plain key"),
    Message(b"no key"),
    Message(EVERY_BYTE, EVERY_BYTE),
    Message("snow ❄ and ёлка".encode(), "ключ".encode()),
    Message(b"with headers", b"k", (("first", b"1"), ("second", b"two"), ("first", b"again"))),
    Message(b"empty header", b"k", (("empty", b""),)),
    *(Message(b"value %d " % number * 20, b"key %d" % (number % 7)) for number in range(300)),
]
NULLS_AND_EMPTIES = [
    Message(None, b"tombstone"),
    Message(b""),
    Message(b"", b""),
    Message(b"empty key", b""),
    Message(None, b"", (("of a", b"tombstone"),)),
]
# Only librdkafka writes messages without key and value; kafka-python refuses header values that are null.
NOTHING = [Message(None)]
NULL_HEADERS = [Message(b"v", None, (("null", None), ("null", b"not"), ("", None), ("naïve ❄", b"x")))]

MESSAGES = {
    "confluent": PLAIN + NULLS_AND_EMPTIES + NULL_HEADERS + NOTHING,
    "kafka-python": PLAIN + NULLS_AND_EMPTIES,
    "aiokafka": PLAIN + NULLS_AND_EMPTIES + NULL_HEADERS,
    "kcat": [*PLAIN, Message(b"", b"k", (("value", b"empty"),)), Message(None, b"k", (("value", b"null"),))],
}


def without_timestamp_type(stored: Stored) -> Stored:
    return replace(stored, log_append_time=None)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_every_client_reads_what_one_wrote(
    clients: Clients, broker: NodeProcess, topic: str, writer: str, codec: str
) -> None:
    messages = MESSAGES[writer]
    clients[writer].write(topic, messages, codec=codec)
    first, *others = [client.read(topic) for client in clients.readers()]
    assert [stored.content for stored in first] == messages
    assert [stored.offset for stored in first] == list(range(len(messages)))
    for other in others:
        assert list(map(without_timestamp_type, other)) == list(map(without_timestamp_type, first))
    # librdkafka leaves a batch that would not shrink uncompressed.
    assert stored_codecs(broker.partition_dir(topic)) - {"none"} == {codec} - {"none"}


@pytest.mark.parametrize("writer", LIBRARIES)
def test_header_values_may_be_any_bytes(clients: Clients, topic: str, writer: str) -> None:
    """kcat cuts the values it shows at a zero byte, so it takes no part."""
    messages = [Message(b"v", None, (("every byte", EVERY_BYTE), ("long", EVERY_BYTE * 100)))]
    clients[writer].write(topic, messages, codec="lz4")
    for reader in LIBRARIES:
        assert [each.content for each in clients[reader].read(topic)] == messages


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_every_acks_level_delivers_in_order(clients: Clients, topic: str, writer: str, acks: str) -> None:
    messages = [Message(b"%d" % number) for number in range(500)]
    clients[writer].write(topic, messages, acks=acks)
    stored = wait_for(
        lambda: clients.confluent.read(topic), lambda seen: len(seen) >= 500, "messages sent without acks"
    )
    assert [each.content for each in stored] == messages


@pytest.mark.parametrize("writer", LIBRARIES)
def test_producers_learn_the_offsets(clients: Clients, topic: str, writer: str) -> None:
    messages = [Message(b"%d" % number) for number in range(100)]
    assert clients[writer].write(topic, messages, acks="1") == list(range(100))
    assert clients[writer].write(topic, messages) == list(range(100, 200))


@pytest.mark.parametrize("reader", EVERY_CLIENT)
def test_codecs_and_writers_mix_in_one_partition(clients: Clients, topic: str, reader: str) -> None:
    expected = []
    for codec in CODECS:
        for writer in LIBRARIES:
            messages = [Message(f"{codec} {writer} {number}".encode() * 10) for number in range(20)]
            clients[writer].write(topic, messages, codec=codec)
            expected += messages
    stored = clients[reader].read(topic)
    assert [each.content for each in stored] == expected
    assert [each.offset for each in stored] == list(range(len(expected)))


@pytest.mark.parametrize("reader", EVERY_CLIENT)
def test_a_read_may_start_in_the_middle_of_a_compressed_batch(
    clients: Clients, broker: NodeProcess, topic: str, reader: str
) -> None:
    messages = [Message(b"message %d" % number) for number in range(200)]
    clients.confluent.write(topic, messages, codec="zstd", linger_ms=200)
    # How many batches they become depends on how busy the machine is.
    largest = max(stored_batches(broker.partition_dir(topic)), key=lambda batch: batch.record_count)
    assert largest.codec == "zstd"
    middle = largest.base_offset + largest.record_count // 2
    assert middle > largest.base_offset
    stored = clients[reader].read(topic, start=middle)
    assert [each.offset for each in stored] == list(range(middle, 200))
    assert [each.content for each in stored] == messages[middle:]
