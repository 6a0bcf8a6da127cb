"""The hand-written Produce codec against kio, and against aiokafka for the versions that kio no longer has."""

from typing import Any
from uuid import UUID

import pytest
from aiokafka.protocol.produce import (
    ProduceRequest_v0,
    ProduceRequest_v1,
    ProduceRequest_v2,
    ProduceResponse_v0,
    ProduceResponse_v1,
    ProduceResponse_v2,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.errors import ErrorCode, RecordError
from millstream.protocol.produce import PartitionOutcome, decode_produce, encode_produce_reply
from millstream.protocol.wire import MalformedRequest
from support.kio_messages import build, decode, encode, messages

VERSIONS = range(3, 14)
PADDING = 9

names = st.text(max_size=20)
ids = st.binary(min_size=16, max_size=16)
offsets = st.integers(-1, 2**63 - 1)


def outcomes(version: int) -> st.SearchStrategy[list[PartitionOutcome]]:
    return st.lists(
        st.builds(
            PartitionOutcome,
            topic=ids if version >= 13 else names,
            index=st.integers(0, 2**31 - 1),
            error=st.sampled_from(ErrorCode),
            message=st.none() | st.text(max_size=30),
            base_offset=offsets,
            log_append_time_ms=st.integers(-1, 2**42),
            log_start_offset=offsets,
            leader_id=st.integers(-1, 100),
            leader_epoch=st.integers(0, 100),
            record_errors=st.lists(
                st.builds(RecordError, st.integers(0, 2**31 - 1), st.none() | st.text(max_size=20)),
                max_size=3,
            ).map(tuple),
        ),
        max_size=6,
    )


def topic_key(topic: Any, version: int) -> Any:
    return (topic.topic_id.bytes if topic.topic_id else bytes(16)) if version >= 13 else topic.name


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_requests_are_read_as_kio_wrote_them(version: int, data: st.DataObject) -> None:
    sent = data.draw(messages("produce", version, "request"))
    body = memoryview(bytes(PADDING) + encode(sent))
    read = decode_produce(body, PADDING, version)
    assert read.transactional_id == sent.transactional_id
    assert (read.acks, read.timeout_ms) == (sent.acks, round(sent.timeout.total_seconds() * 1000))
    assert [topic.topic for topic in read.topics] == [topic_key(topic, version) for topic in sent.topic_data]
    for ours, theirs in zip(read.topics, sent.topic_data, strict=True):
        assert [(each.partition, _bytes(each.records)) for each in ours.partitions] == [
            (each.index, each.records) for each in theirs.partition_data
        ]


def _bytes(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_replies_are_read_by_kio_as_we_wrote_them(version: int, data: st.DataObject) -> None:
    sent = data.draw(outcomes(version))
    read = decode("produce", version, "response", encode_produce_reply(version, sent, throttle_ms=7))
    assert read.throttle_time.total_seconds() == 0.007
    flat = [(topic, partition) for topic in read.responses for partition in topic.partition_responses]
    assert len(flat) == len(sent)
    for outcome, (topic, partition) in zip(sent, flat, strict=True):
        assert topic_key(topic, version) == outcome.topic
        assert (partition.index, partition.error_code) == (outcome.index, outcome.error)
        assert partition.base_offset == outcome.base_offset
        if version >= 5:
            assert partition.log_start_offset == outcome.log_start_offset
        if version >= 8:
            assert partition.error_message == outcome.message
            named = [(each.batch_index, each.batch_index_error_message) for each in partition.record_errors]
            assert named == list(outcome.record_errors)
        if version >= 10:
            leader = (outcome.leader_id, outcome.leader_epoch) if outcome.leader_id >= 0 else (-1, -1)
            assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == leader


def test_log_append_time_is_in_the_reply() -> None:
    body = encode_produce_reply(9, [PartitionOutcome("t", 0, log_append_time_ms=1_700_000_000_123)])
    (topic,) = decode("produce", 9, "response", body).responses
    assert topic.partition_responses[0].log_append_time.timestamp() == 1_700_000_000.123


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_of_a_topic_share_one_entry(version: int) -> None:
    one, other = (b"\1" * 16, b"\2" * 16) if version >= 13 else ("a", "b")
    sent = [PartitionOutcome(one, 0), PartitionOutcome(one, 1), PartitionOutcome(other, 0)]
    read = decode("produce", version, "response", encode_produce_reply(version, sent))
    assert [[each.index for each in topic.partition_responses] for topic in read.responses] == [[0, 1], [0]]


@pytest.mark.parametrize("request_class", [ProduceRequest_v0, ProduceRequest_v1, ProduceRequest_v2])
def test_requests_before_version_3_are_read_so_that_they_can_be_refused(request_class: Any) -> None:
    sent = request_class(required_acks=-1, timeout=1500, topics=[("t", [(3, b"old"), (4, b"")]), ("u", [])])
    read = decode_produce(memoryview(sent.encode()), 0, request_class.API_VERSION)
    assert (read.transactional_id, read.acks, read.timeout_ms) == (None, -1, 1500)
    assert [
        (topic, [(index, bytes(data or b"")) for index, data in parts]) for topic, parts in read.topics
    ] == [
        ("t", [(3, b"old"), (4, b"")]),
        ("u", []),
    ]


@pytest.mark.parametrize("response_class", [ProduceResponse_v0, ProduceResponse_v1, ProduceResponse_v2])
def test_replies_before_version_3_have_their_shape(response_class: Any) -> None:
    version = response_class.API_VERSION
    outcome = PartitionOutcome("t", 3, ErrorCode.UNSUPPORTED_VERSION, "no", base_offset=-1)
    body = encode_produce_reply(version, [outcome], throttle_ms=5)
    read = response_class.decode(body)
    assert read.encode() == body
    partition = read.topics[0][1][0]
    assert partition[:3] == (3, 35, -1)
    assert len(partition) == (4 if version == 2 else 3)
    assert getattr(read, "throttle_time_ms", 5) == 5


@pytest.mark.parametrize("version", range(14))
def test_a_request_cut_anywhere_is_malformed(version: int) -> None:
    if version < 3:
        request_class = (ProduceRequest_v0, ProduceRequest_v1, ProduceRequest_v2)[version]
        whole = request_class(required_acks=1, timeout=1, topics=[("topic", [(0, b"records")])]).encode()
    else:
        topic: dict[str, Any] = {"partition_data": [{"index": 0, "records": b"records"}]}
        topic |= {"topic_id": UUID(int=5)} if version >= 13 else {"name": "topic"}
        whole = encode(build("produce", version, topic_data=[topic]))
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            decode_produce(memoryview(whole[:size]), 0, version)
