"""Compacted topics: the latest value of each key stays, at its offset, and every client reads what is left."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as ConfluentMessage
from confluent_kafka.admin import AdminClient

from support.clients.kinds import EVERY_CLIENT, Clients
from support.clients.message import PATIENCE_S, Message, ProduceFailed, Stored
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

# Every batch gets a segment of its own, all but the last are cleaned as soon as there is something to clean.
EAGER = {"cleanup.policy": "compact", "segment.bytes": 100, "min.cleanable.dirty.ratio": 0.01}
KEYS = 20
ROUNDS = 5


@pytest.fixture(scope="module")
def cleaning_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"storage.cleaner_interval": "50ms", "storage.retention_check_interval": "100ms"}
    node = NodeProcess(tmp_path_factory.mktemp("cleaning"), settings=settings).start()
    try:
        yield node
        node.stop()
    finally:
        node.close()


@pytest.fixture(scope="module")
def clients(cleaning_node: NodeProcess) -> Iterator[Clients]:
    with Clients(cleaning_node.bootstrap) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cleaning_node: NodeProcess) -> AdminClient:
    return admin_for(cleaning_node.bootstrap)


def write_rounds(clients: Clients, writer: str, topic: str, codec: str = "none") -> None:
    """Five values for each of twenty keys, then one message in a segment of its own.

    acks=1, because each write is by a new producer, and of each idempotent one the last batch would stay.
    """
    for round_number in range(ROUNDS):
        messages = [Message(b"value %d" % round_number * 10, b"key %d" % key) for key in range(KEYS)]
        clients[writer].write(topic, messages, codec=codec, acks="1")
    clients[writer].write(topic, [Message(b"last", b"last")], codec=codec, acks="1")


def wait_until_cleaned(clients: Clients, topic: str, count: int) -> list[Stored]:
    return wait_for(
        lambda: clients.confluent.read(topic), lambda stored: len(stored) <= count, f"{topic} is cleaned"
    )


LATEST = [
    (KEYS * (ROUNDS - 1) + key, b"key %d" % key, b"value %d" % (ROUNDS - 1) * 10) for key in range(KEYS)
]


def summary(stored: list[Stored]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in stored]


@pytest.mark.parametrize(
    ("writer", "codec"),
    [
        ("confluent", "none"),
        ("confluent", "zstd"),
        ("kafka-python", "gzip"),
        ("kafka-python", "snappy"),
        ("aiokafka", "lz4"),
    ],
)
def test_the_latest_value_of_each_key_stays_at_its_offset(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str], writer: str, codec: str
) -> None:
    topic = create_topic(admin, new_topic(), configs=EAGER)
    write_rounds(clients, writer, topic, codec)
    wait_until_cleaned(clients, topic, KEYS + 1)
    for reader in clients.readers():
        assert summary(reader.read(topic)) == [*LATEST, (KEYS * ROUNDS, b"last", b"last")]
    consumer = clients.confluent.consumer()
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S) == (0, KEYS * ROUNDS + 1)
    finally:
        consumer.close()


def test_a_read_may_start_at_an_offset_that_was_cleaned_away(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(admin, new_topic(), configs=EAGER)
    write_rounds(clients, "confluent", topic)
    wait_until_cleaned(clients, topic, KEYS + 1)
    for reader in clients.readers():
        assert reader.read(topic, start=3)[0].offset == LATEST[0][0]
        assert reader.read(topic, start=LATEST[7][0])[0].offset == LATEST[7][0]


def test_messages_written_after_a_cleaning_follow_on(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(admin, new_topic(), configs=EAGER)
    write_rounds(clients, "confluent", topic)
    wait_until_cleaned(clients, topic, KEYS + 1)
    newer = [Message(b"newest", b"key %d" % key) for key in range(KEYS)]
    assert clients.confluent.write(topic, newer)[0] == KEYS * ROUNDS + 1
    clients.confluent.write(topic, [Message(b"last", b"not in the first segments")])
    stored = wait_until_cleaned(clients, topic, KEYS + 2)
    assert [each.value for each in stored] == [b"last"] + [b"newest"] * KEYS + [b"last"]


def test_tombstones_stay_for_their_time_and_then_go(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    kept = create_topic(admin, new_topic(), configs=EAGER)
    gone = create_topic(admin, new_topic(), configs={**EAGER, "delete.retention.ms": 0})
    for topic in (kept, gone):
        clients.confluent.write(topic, [Message(b"v", b"a"), Message(b"v", b"b")])
        clients.confluent.write(topic, [Message(None, b"a")])
        clients.confluent.write(topic, [Message(b"last", b"last")])
    assert summary(wait_until_cleaned(clients, kept, 3)) == [
        (1, b"b", b"v"),
        (2, b"a", None),
        (3, b"last", b"last"),
    ]
    assert summary(wait_until_cleaned(clients, gone, 2)) == [(1, b"b", b"v"), (3, b"last", b"last")]
    assert len(clients.confluent.read(kept)) == 3


def test_what_is_overdue_is_cleaned_without_further_writes(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    """The last segment is never cleaned; max.compaction.lag.ms makes the node seal it."""
    configs = {"cleanup.policy": "compact", "max.compaction.lag.ms": 200}
    topic = create_topic(admin, new_topic(), configs=configs)
    clients.confluent.write(topic, [Message(b"%d" % number, b"k") for number in range(5)])
    assert summary(wait_until_cleaned(clients, topic, 1)) == [(4, b"k", b"4")]


def test_what_is_too_young_is_not_cleaned(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(admin, new_topic(), configs={**EAGER, "min.compaction.lag.ms": 3_600_000})
    hours_ago = time.time_ns() // 1_000_000 - 2 * 3_600_000
    for timestamp_ms in (hours_ago, hours_ago + 1, None, None):
        clients.confluent.write(topic, [Message(b"v", b"k", timestamp_ms=timestamp_ms)])
    clients.confluent.write(topic, [Message(b"last", b"last")])
    stored = wait_until_cleaned(clients, topic, 4)
    assert [each.offset for each in stored] == [1, 2, 3, 4]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_idempotent_producers_go_on_after_a_cleaning_took_their_last_batch(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str], codec: str
) -> None:
    """The cleaner leaves an empty batch, which remembers the sequence; every client reads past it."""
    topic = create_topic(admin, new_topic(), configs={**EAGER, "segment.bytes": 1000})
    first = clients.confluent.producer(enable_idempotence=True, compression_type=codec)
    messages = [Message(b"v" * 30, b"key %d" % key) for key in range(10)]
    for message in messages:
        first.produce(topic, message.value, message.key)
    assert first.flush(PATIENCE_S) == 0
    for _ in range(3):
        clients.confluent.write(topic, messages, codec=codec, enable_idempotence=True)
    clients.confluent.write(topic, [Message(b"x" * 1000, b"last")])
    wait_until_cleaned(clients, topic, 11)
    first.produce(topic, b"goes on", b"key 0")
    assert first.flush(PATIENCE_S) == 0
    for reader in clients.readers():
        stored = reader.read(topic)
        assert [each.value for each in stored][-2:] == [b"x" * 1000, b"goes on"]
        assert [each.offset for each in stored][-2:] == [40, 41]


@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_messages_without_a_key_are_refused(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str], writer: str
) -> None:
    topic = create_topic(admin, new_topic(), configs={"cleanup.policy": "compact"})
    with pytest.raises(ProduceFailed) as refused:
        clients[writer].write(topic, [Message(b"no key")], codec="gzip")
    # aiokafka does not know this error.
    assert refused.value.code == ("UNKNOWN_SERVER_ERROR" if writer == "aiokafka" else "INVALID_RECORD")
    clients[writer].write(topic, [Message(b"v", b"k")])
    assert [each.key for each in clients[writer].read(topic)] == [b"k"]


def test_a_client_tells_which_messages_of_a_batch_have_no_key(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(admin, new_topic(), configs={"cleanup.policy": "compact"})
    # Nothing is sent before `flush`, so that all are in one batch: messages of a topic that the producer does not know
    # yet would go to their partition one by one, while they are being flushed.
    producer = clients.confluent.producer(linger_ms=60_000, batch_num_messages=100)
    producer.list_topics(topic, PATIENCE_S)
    codes: dict[bytes, int] = {}

    def delivered(error: KafkaError, message: ConfluentMessage) -> None:
        codes[message.value()] = error.code()

    # With one alone librdkafka does not tell it from the others.
    for value, key in ((b"a", b"k"), (b"b", None), (b"c", b"k"), (b"d", None)):
        producer.produce(topic, value, key, partition=0, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert codes[b"b"] == codes[b"d"] == KafkaError.INVALID_RECORD
    assert codes[b"a"] == codes[b"c"] == KafkaError._INVALID_DIFFERENT_RECORD


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(admin, new_topic(), configs={"cleanup.policy": "compact"})
    clients.confluent.write(topic, [Message(b"v", b"k")])
    place = TopicPartition(topic, 0, 1)
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.delete_records([place])[place].result(PATIENCE_S)


def test_a_topic_is_compacted_and_cut_by_retention_at_once(
    clients: Clients, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    configs = {**EAGER, "cleanup.policy": "compact,delete", "retention.ms": 3_600_000}
    topic = create_topic(admin, new_topic(), configs=configs)
    clients.confluent.write(topic, [Message(b"old", b"only once", timestamp_ms=1000)])
    write_rounds(clients, "confluent", topic)
    # Before anything is read: the old one may go between the question for the start and the fetch. Compaction may have
    # left nothing but the old one of the segments after it; then these go with it.
    wait_for(lambda: clients.confluent.start_and_end(topic)[0], lambda start: start >= 1, "the old goes")
    stored = wait_until_cleaned(clients, topic, KEYS + 1)
    assert [each.offset for each in stored] == [offset + 1 for offset, *_ in LATEST] + [KEYS * ROUNDS + 1]


def test_what_was_cleaned_is_the_same_after_restarts(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node(settings={"storage.cleaner_interval": "50ms"})
    create_topic(admin_for(node.bootstrap), "topic", configs=EAGER)
    with Clients(node.bootstrap) as clients:
        write_rounds(clients, "confluent", "topic", codec="lz4")
        before = wait_until_cleaned(clients, "topic", KEYS + 1)
    for restart in (node.crash_and_restart, node.restart):
        restart()
        with Clients(node.bootstrap) as clients:
            assert clients.confluent.read("topic") == before
            assert len(clients.kafka_python.read("topic")) == len(before)
