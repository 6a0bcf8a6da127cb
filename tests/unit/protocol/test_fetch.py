"""The hand-written Fetch codec against kio, at every version."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import FetchedPartition, decode_fetch, encode_fetch_reply
from millstream.protocol.wire import MalformedRequest
from support.kio_messages import build, decode, encode, messages

VERSIONS = range(4, 19)
PADDING = 5

offsets = st.integers(-1, 2**63 - 1)


def fetched(version: int) -> st.SearchStrategy[list[FetchedPartition]]:
    return st.lists(
        st.builds(
            FetchedPartition,
            topic=st.binary(min_size=16, max_size=16) if version >= 13 else st.text(max_size=20),
            index=st.integers(0, 2**31 - 1),
            error=st.sampled_from(ErrorCode),
            high_watermark=offsets,
            last_stable_offset=offsets,
            log_start_offset=offsets,
            records=st.binary(max_size=300),
            diverging_epoch=st.none() | st.tuples(st.integers(-1, 1000), offsets),
            leader_id=st.integers(-1, 100),
            leader_epoch=st.integers(0, 100),
        ),
        max_size=6,
    )


def topic_key(topic: Any, version: int, name: str = "topic") -> Any:
    if version >= 13:
        return topic.topic_id.bytes if topic.topic_id else bytes(16)
    return getattr(topic, name)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_requests_are_read_as_kio_wrote_them(version: int, data: st.DataObject) -> None:
    sent = data.draw(messages("fetch", version, "request"))
    read = decode_fetch(memoryview(bytes(PADDING) + encode(sent)), PADDING, version)
    replica = sent.replica_id if version <= 14 else sent.replica_state.replica_id
    assert read.replica_id == replica
    assert read.max_wait_ms == round(sent.max_wait.total_seconds() * 1000)
    assert (read.min_bytes, read.max_bytes, read.isolation_level) == (
        sent.min_bytes,
        sent.max_bytes,
        sent.isolation_level,
    )
    session = (sent.session_id, sent.session_epoch) if version >= 7 else (0, -1)
    assert (read.session_id, read.session_epoch) == session
    assert read.rack_id == getattr(sent, "rack_id", "")
    assert [topic.topic for topic in read.topics] == [topic_key(topic, version) for topic in sent.topics]
    for ours, theirs in zip(read.topics, sent.topics, strict=True):
        for one, other in zip(ours.partitions, theirs.partitions, strict=True):
            assert (one.partition, one.fetch_offset, one.max_bytes) == (
                other.partition,
                other.fetch_offset,
                other.partition_max_bytes,
            )
            assert one.current_leader_epoch == getattr(other, "current_leader_epoch", -1)
            assert one.last_fetched_epoch == getattr(other, "last_fetched_epoch", -1)
            assert one.log_start_offset == getattr(other, "log_start_offset", -1)
    forgotten = [
        (topic_key(topic, version), list(topic.partitions))
        for topic in getattr(sent, "forgotten_topics_data", ())
    ]
    assert read.forgotten == forgotten


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_replies_are_read_by_kio_as_we_wrote_them(version: int, data: st.DataObject) -> None:
    sent = data.draw(fetched(version))
    session_id = data.draw(st.integers(0, 2**31 - 1))
    error = data.draw(st.sampled_from(ErrorCode))
    body = b"".join(encode_fetch_reply(version, sent, error=error, session_id=session_id, throttle_ms=3))
    read = decode("fetch", version, "response", body)
    assert read.throttle_time.total_seconds() == 0.003
    if version >= 7:
        assert (read.error_code, read.session_id) == (error, session_id)
    flat = [(topic, partition) for topic in read.responses for partition in topic.partitions]
    assert len(flat) == len(sent)
    for ours, (topic, theirs) in zip(sent, flat, strict=True):
        assert topic_key(topic, version) == ours.topic
        assert (theirs.partition_index, theirs.error_code) == (ours.index, ours.error)
        assert (theirs.high_watermark, theirs.last_stable_offset) == (
            ours.high_watermark,
            ours.last_stable_offset,
        )
        assert (theirs.records or b"") == ours.records
        assert not theirs.aborted_transactions
        if version >= 5:
            assert theirs.log_start_offset == ours.log_start_offset
        if version >= 11:
            assert theirs.preferred_read_replica == -1
        if version >= 12:
            diverging = (theirs.diverging_epoch.epoch, theirs.diverging_epoch.end_offset)
            assert diverging == (ours.diverging_epoch or (-1, -1))
            leader = (ours.leader_id, ours.leader_epoch) if ours.leader_id >= 0 else (-1, -1)
            assert (theirs.current_leader.leader_id, theirs.current_leader.leader_epoch) == leader


def test_records_go_into_the_reply_without_being_copied() -> None:
    records = memoryview(b"r" * 1000)
    parts = encode_fetch_reply(12, [FetchedPartition("t", 0, records=records)])
    assert any(part is records for part in parts)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_malformed(version: int) -> None:
    topic: dict[str, Any] = {"partitions": [{"partition": 0}]}
    topic |= {"topic_id": UUID(int=5)} if version >= 13 else {"topic": "topic"}
    whole = encode(build("fetch", version, topics=[topic]))
    decode_fetch(memoryview(whole), 0, version)
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            decode_fetch(memoryview(whole[:size]), 0, version)


def test_a_tagged_replica_state_that_is_cut_is_malformed() -> None:
    whole = encode(build("fetch", 15))
    with pytest.raises(MalformedRequest):
        decode_fetch(memoryview(whole[:-1] + b"\1\1\2\0\0"), 0, 15)
