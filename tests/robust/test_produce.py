"""Produce on the wire: what is taken, what is refused and how the client is told."""

import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.protocol.produce import (
    ProduceRequest_v0,
    ProduceRequest_v1,
    ProduceRequest_v2,
    ProduceResponse_v0,
    ProduceResponse_v1,
    ProduceResponse_v2,
)

from millstream.protocol.compression import Compression
from millstream.protocol.record_batch import HEADER, read_header
from support.node import NodeProcess
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    garbage_batch,
    milliseconds,
    produce,
    produce_fields,
)
from support.waiting import wait_for

CORRUPT_MESSAGE, UNKNOWN_TOPIC, MESSAGE_TOO_LARGE, INVALID_REQUIRED_ACKS = 2, 3, 10, 21
INVALID_TIMESTAMP, UNSUPPORTED_VERSION, INVALID_TXN_STATE = 32, 35, 48
POLICY_VIOLATION, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, UNKNOWN_TOPIC_ID = 44, 76, 87, 100


def with_header(**changes: int) -> bytes:
    """A batch whose header says something else, and whose checksum therefore no longer holds, except for `magic`."""
    batch = bytearray(batch_of(b"a", b"b"))
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**changes))
    return bytes(batch)


def log_end(client: RawClient, topic: str) -> int:
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    return int(client.call("list_offsets", 7, topics=[wanted]).topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_is_served(client: RawClient, topic: str, version: int, acks: int) -> None:
    fields = produce_fields(topic, batch_of(b"a", b"b"), acks=acks)
    (answer,) = client.call("produce", version, **fields).responses
    assert (answer.name, answer.partition_responses[0].error_code) == (topic, 0)
    assert (answer.partition_responses[0].base_offset, log_end(client, topic)) == (0, 2)


def test_from_version_13_on_the_topic_is_named_by_id(client: RawClient, topic: str) -> None:
    topic_id = client.call("metadata", 12, topics=[{"name": topic}]).topics[0].topic_id
    for asked, error in ((topic_id, 0), (uuid.uuid4(), UNKNOWN_TOPIC_ID)):
        data = {"topic_id": asked, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}
        reply = client.call("produce", 13, acks=-1, timeout=milliseconds(5000), topic_data=[data])
        assert reply.responses[0].topic_id == asked
        assert reply.responses[0].partition_responses[0].error_code == error


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", CORRUPT_MESSAGE),
        (b"nonsense", CORRUPT_MESSAGE),
        (batch_of(b"a")[:-1], CORRUPT_MESSAGE),
        (batch_of(b"a") + batch_of(b"b"), INVALID_RECORD),
        (with_header(magic=1), INVALID_RECORD),
        (with_header(crc=0), CORRUPT_MESSAGE),
        (with_header(record_count=3), CORRUPT_MESSAGE),
        (with_header(batch_length=10_000), CORRUPT_MESSAGE),
        (batch_of(b"a", control=True), INVALID_RECORD),
        (batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True), INVALID_TXN_STATE),
        (batch_of(b"a" * 1_200_000), MESSAGE_TOO_LARGE),
        (batch_of(b"a", timestamp_ms=2**60), INVALID_TIMESTAMP),
    ],
    ids=[
        "empty", "nonsense", "cut", "two batches", "old format", "checksum", "count", "size", "control",
        "transactional", "too large", "far future",
    ],
)  # fmt: skip
def test_a_bad_batch_is_refused_and_leaves_no_trace(
    client: RawClient, topic: str, batch: bytes, error: int
) -> None:
    refused = produce(client, topic, batch)
    assert (refused.error_code, refused.base_offset) == (error, -1)
    assert refused.error_message
    assert log_end(client, topic) == 0
    assert produce(client, topic, batch_of(b"good")).base_offset == 0


def test_no_records_at_all_are_refused(client: RawClient, topic: str) -> None:
    fields = produce_fields(topic, batch_of(b"a"))
    fields["topic_data"][0]["partition_data"][0]["records"] = None
    (answer,) = client.call("produce", 9, **fields).responses
    assert answer.partition_responses[0].error_code == INVALID_RECORD


@pytest.mark.parametrize(
    ("version", "error"), [(3, UNSUPPORTED_COMPRESSION_TYPE), (6, UNSUPPORTED_COMPRESSION_TYPE), (7, 0)]
)
def test_zstd_needs_version_7(client: RawClient, topic: str, version: int, error: int) -> None:
    assert produce(client, topic, batch_of(b"a", codec=Compression.ZSTD), version=version).error_code == error


@pytest.mark.parametrize("acks", [2, 7, -2, 32767])
def test_acks_other_than_0_1_and_all_are_refused(client: RawClient, topic: str, acks: int) -> None:
    (answer,) = client.call("produce", 9, **produce_fields(topic, batch_of(b"a"), acks=acks)).responses
    assert answer.partition_responses[0].error_code == INVALID_REQUIRED_ACKS
    assert log_end(client, topic) == 0


@pytest.mark.parametrize("version", [8, 9])
def test_a_topic_name_that_is_long_and_strange_comes_back_in_an_error(
    client: RawClient, version: int
) -> None:
    name = "\x01" * 32_000
    (answer,) = client.call("produce", version, **produce_fields(name, batch_of(b"a"))).responses
    assert (answer.name, answer.partition_responses[0].error_code) == (name, UNKNOWN_TOPIC)
    assert client.call("api_versions", 0).error_code == 0


def test_partitions_fail_one_by_one(client: RawClient, new_topic: Callable[[], str]) -> None:
    name = create_topic(client, new_topic(), partitions=2)
    fields = produce_fields(name, batch_of(b"a"), b"garbage", batch_of(b"c"))
    fields["topic_data"].append(
        {"name": "nobody", "partition_data": [{"index": 0, "records": batch_of(b"d")}]}
    )
    here, nowhere = client.call("produce", 9, **fields).responses
    assert [each.error_code for each in here.partition_responses] == [0, CORRUPT_MESSAGE, UNKNOWN_TOPIC]
    assert nowhere.partition_responses[0].error_code == UNKNOWN_TOPIC


def test_the_same_partition_twice_in_a_request_is_written_twice(client: RawClient, topic: str) -> None:
    fields = produce_fields(topic, batch_of(b"a"))
    fields["topic_data"][0]["partition_data"] *= 2
    (answer,) = client.call("produce", 9, **fields).responses
    assert [each.base_offset for each in answer.partition_responses] == [0, 1]


def test_a_request_without_partitions_is_answered(client: RawClient, topic: str) -> None:
    assert client.call("produce", 9, acks=-1).responses == ()
    assert client.call("produce", 9, **produce_fields(topic)).responses == ()


# -- acks=0


def test_without_acks_there_is_no_reply_and_the_records_are_there(client: RawClient, topic: str) -> None:
    client.send("produce", 9, **produce_fields(topic, batch_of(b"a"), acks=0))
    client.expect_no_reply()
    client.send("metadata", 12, topics=[{"name": topic}])
    assert client.receive().topics[0].name == topic
    wait_for(lambda: log_end(client, topic), lambda end: end == 1, "the record is there")


def test_an_error_without_acks_closes_the_connection_with_one_line(
    broker: NodeProcess, client: RawClient, connect: Callable[[], RawClient], topic: str
) -> None:
    failing = connect()
    failing.send("produce", 9, **produce_fields(topic, b"garbage", acks=0))
    assert failing.is_closed_by_broker()
    peer = "{}:{}".format(*failing.socket.getsockname())
    assert [line["peer"] for line in broker.log_entries("connection closed")].count(peer) == 1
    assert produce(client, topic, batch_of(b"a")).base_offset == 0


# -- versions that only Kafka 3 served


@pytest.mark.parametrize(
    ("request_class", "response_class"),
    [
        (ProduceRequest_v0, ProduceResponse_v0),
        (ProduceRequest_v1, ProduceResponse_v1),
        (ProduceRequest_v2, ProduceResponse_v2),
    ],
)
def test_versions_before_3_are_refused_by_name(
    client: RawClient, topic: str, request_class: Any, response_class: Any
) -> None:
    request = request_class(required_acks=1, timeout=1000, topics=[(topic, [(0, b"whatever")])])
    client.send_bytes(client.expect("produce", request_class.API_VERSION, request.encode()))
    reply = response_class.decode(client.receive_body())
    (name, partitions) = reply.topics[0]
    assert (name, partitions[0][:3]) == (topic, (0, UNSUPPORTED_VERSION, -1))
    assert log_end(client, topic) == 0


# -- batches that must be opened


@pytest.mark.parametrize("codec", Compression)
def test_garbage_for_a_compacted_topic_is_refused(
    client: RawClient, new_topic: Callable[[], str], codec: Compression
) -> None:
    name = create_topic(client, new_topic(), cleanup_policy="compact")
    assert produce(client, name, garbage_batch(codec)).error_code in (CORRUPT_MESSAGE, INVALID_RECORD)
    assert log_end(client, name) == 0


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.ZSTD])
def test_garbage_that_cannot_be_unpacked_for_another_codec_is_refused(
    client: RawClient, new_topic: Callable[[], str], codec: Compression
) -> None:
    name = create_topic(client, new_topic(), compression_type="lz4")
    assert produce(client, name, garbage_batch(codec)).error_code in (CORRUPT_MESSAGE, INVALID_RECORD)
    assert log_end(client, name) == 0


def test_requests_behind_a_batch_that_is_being_opened_keep_their_order(
    client: RawClient, new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), compression_type="gzip")
    for number in range(20):
        client.send("produce", 9, **produce_fields(name, batch_of(b"%d" % number * 50_000)))
        client.send("metadata", 12, topics=[{"name": name}])
    for number in range(20):
        assert client.receive().responses[0].partition_responses[0].base_offset == number
        assert client.receive().topics[0].name == name


def test_records_sent_without_acks_by_a_client_that_leaves_at_once_are_kept(
    client: RawClient, connect: Callable[[], RawClient], new_topic: Callable[[], str]
) -> None:
    for options in ({}, {"compression_type": "gzip"}):
        name = create_topic(client, new_topic(), **options)
        leaving = connect()
        for _ in range(5):
            leaving.send("produce", 9, **produce_fields(name, batch_of(b"a" * 1000), acks=0))
        leaving.close()
        wait_for(lambda name=name: log_end(client, name), lambda end: end == 5, "all records are there")


def test_a_topic_deleted_under_a_producer_is_told(
    client: RawClient, connect: Callable[[], RawClient], topic: str
) -> None:
    other = connect()
    for _ in range(50):
        client.send("produce", 9, **produce_fields(topic, batch_of(b"a")))
    other.call("delete_topics", 6, topics=[{"name": topic}])
    for _ in range(50):
        client.send("produce", 9, **produce_fields(topic, batch_of(b"a")))
    errors = [client.receive().responses[0].partition_responses[0].error_code for _ in range(100)]
    assert errors == sorted(errors)
    assert set(errors) <= {0, UNKNOWN_TOPIC}
    assert errors[-1] == UNKNOWN_TOPIC


def test_records_are_visible_to_a_fetch_right_after_their_acknowledgement(
    client: RawClient, topic: str
) -> None:
    for number in range(30):
        produce(client, topic, batch_of(b"a"))
        (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, number)))
        assert struct.unpack_from(">q", fetched.records) == (number,)


def test_a_batch_that_is_sent_again_to_a_full_queue_gets_its_old_offset(
    client: RawClient, new_topic: Callable[[], str]
) -> None:
    topic = create_topic(client, new_topic(), queue_max_depth=2)
    sent = batch_of(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        answer = produce(client, topic, sent)
        assert (answer.error_code, answer.base_offset) == (0, 0)
    more = batch_of(b"c", producer_id=5, producer_epoch=0, base_sequence=2)
    assert produce(client, topic, more).error_code == POLICY_VIOLATION
    assert log_end(client, topic) == 2
