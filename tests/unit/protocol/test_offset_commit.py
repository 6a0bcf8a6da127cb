"""The hand-written OffsetCommit codec against kio."""

import datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.errors import ErrorCode
from millstream.protocol.offset_commit import TopicOutcome, decode_offset_commit, encode_offset_commit_reply
from millstream.protocol.wire import MalformedRequest
from support.kio_messages import build, decode, encode, messages

VERSIONS = range(2, 11)
PADDING = 9


def topic_key(topic: Any, version: int) -> Any:
    return (topic.topic_id.bytes if topic.topic_id else bytes(16)) if version >= 10 else topic.name


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_requests_are_read_as_kio_wrote_them(version: int, data: st.DataObject) -> None:
    sent = data.draw(messages("offset_commit", version, "request"))
    read = decode_offset_commit(memoryview(bytes(PADDING) + encode(sent)), PADDING, version)
    assert (read.group_id, read.member_id) == (sent.group_id, sent.member_id)
    assert read.generation_or_epoch == sent.generation_id_or_member_epoch
    assert read.instance_id == getattr(sent, "group_instance_id", None)
    if version <= 4:
        assert read.retention_ms == sent.retention_time // datetime.timedelta(milliseconds=1)
    else:
        assert read.retention_ms == -1
    assert [topic.topic for topic in read.topics] == [topic_key(topic, version) for topic in sent.topics]
    for ours, theirs in zip(read.topics, sent.topics, strict=True):
        assert [tuple(each) for each in ours.partitions] == [
            (
                each.partition_index,
                each.committed_offset,
                getattr(each, "committed_leader_epoch", -1),
                each.committed_metadata or "",
            )
            for each in theirs.partitions
        ]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_replies_are_read_by_kio_as_they_were_meant(version: int, data: st.DataObject) -> None:
    keys = st.binary(min_size=16, max_size=16) if version >= 10 else st.text(max_size=20)
    codes = st.tuples(st.integers(0, 2**31 - 1), st.sampled_from(ErrorCode))
    topics = data.draw(st.lists(st.builds(TopicOutcome, keys, st.lists(codes, max_size=5)), max_size=5))
    reply = decode("offset_commit", version, "response", encode_offset_commit_reply(version, topics))
    assert [topic_key(topic, version) for topic in reply.topics] == [topic.topic for topic in topics]
    for ours, theirs in zip(topics, reply.topics, strict=True):
        found = [(each.partition_index, each.error_code) for each in theirs.partitions]
        assert found == list(ours.partitions)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_part_of_a_request_is_a_request(version: int) -> None:
    partitions = [{"partition_index": 1, "committed_offset": 2, "committed_metadata": "m"}]
    topic: dict[str, object] = {"topic_id": UUID(int=7)} if version >= 10 else {"name": "t"}
    sent = build("offset_commit", version, group_id="g", topics=[{**topic, "partitions": partitions}])
    body = encode(sent)
    for size in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_offset_commit(memoryview(body[:size]), 0, version)
    with pytest.raises(MalformedRequest, match="1 bytes unread"):
        decode_offset_commit(memoryview(body + b"\0"), 0, version)
