"""ShareFetch by hand says the same as kio's description of it."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.api import APIS
from millstream.protocol.codec import decode_request, decode_response, encode_request
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.share_fetch import (
    FetchedShare,
    ShareFetchAnswer,
    decode_share_fetch,
    encode_share_fetch_reply,
)

API = next(api for api in APIS.values() if api.name == "share_fetch")
offsets = st.integers(0, 2**62)
numbers = st.integers(0, 2**31 - 1)
ids = st.uuids().filter(lambda each: each.int)
batches = st.fixed_dictionaries(
    {
        "first_offset": offsets,
        "last_offset": offsets,
        "acknowledge_types": st.lists(st.integers(-128, 127), max_size=4),
    }
)
partitions = st.fixed_dictionaries(
    {"partition_index": st.integers(0, 1000), "acknowledgement_batches": st.lists(batches, max_size=3)}
)
requests = st.fixed_dictionaries(
    {
        "group_id": st.none() | st.text(max_size=5),
        "member_id": st.none() | st.text(max_size=200),
        "share_session_epoch": st.integers(-1, 2**31 - 1),
        "max_wait": numbers.map(lambda ms: timedelta(milliseconds=ms)),
        "min_bytes": numbers,
        "max_bytes": numbers,
        "max_records": numbers,
        "batch_size": numbers,
        "topics": st.lists(
            st.fixed_dictionaries({"topic_id": ids, "partitions": st.lists(partitions, max_size=3)}),
            max_size=3,
        ),
        "forgotten_topics_data": st.lists(
            st.fixed_dictionaries({"topic_id": ids, "partitions": st.lists(st.integers(0, 1000))}), max_size=3
        ),
    }
)


@given(requests, st.integers(-128, 127), st.booleans(), st.sampled_from((1, 2)))
def test_requests(fields: dict[str, Any], mode: int, renews: bool, version: int) -> None:
    if version == 2:
        fields = {**fields, "share_acquire_mode": mode, "is_renew_ack": renews}
    body = encode_request(API, version, fields)
    by_kio = decode_request(API, version, memoryview(body))
    by_hand = decode_share_fetch(memoryview(b"head" + body), 4, version)
    assert by_hand[:3] == (by_kio.group_id, by_kio.member_id, by_kio.share_session_epoch)
    assert timedelta(milliseconds=by_hand.max_wait_ms) == by_kio.max_wait
    limits = (by_kio.min_bytes, by_kio.max_bytes, by_kio.max_records, by_kio.batch_size)
    assert by_hand[4:8] == limits
    assert by_hand[8:10] == ((mode, renews) if version == 2 else (0, False))
    assert [
        (
            topic.topic_id,
            [
                (each.partition_index, [tuple(batch) for batch in each.acknowledgement_batches])
                for each in topic.partitions
            ],
        )
        for topic in by_hand.topics
    ] == [
        (
            topic.topic_id,
            [
                (
                    each.partition_index,
                    [
                        (batch.first_offset, batch.last_offset, batch.acknowledge_types)
                        for batch in each.acknowledgement_batches
                    ],
                )
                for each in topic.partitions
            ],
        )
        for topic in by_kio.topics
    ]
    forgotten = [(each.topic_id, list(each.partitions)) for each in by_kio.forgotten_topics_data]
    assert by_hand.forgotten == forgotten


messages = st.none() | st.text(max_size=200)
codes = st.sampled_from((ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD_STATE))
leaders = st.tuples(st.integers(-1, 100), st.integers(-1, 100))
fetched = st.builds(
    lambda index, error, message, refused, why, leader, data, ranges: FetchedShare(
        index,
        error,
        message if error else None,
        refused,
        why if refused else None,
        leader,
        [memoryview(each) for each in data],
        ranges,
    ),
    st.integers(0, 1000),
    codes,
    messages,
    codes,
    messages,
    leaders,
    st.lists(st.binary(min_size=1, max_size=200), max_size=3),
    st.lists(st.tuples(offsets, offsets, st.integers(0, 2**15 - 1)), max_size=200),
)
answers = st.builds(
    ShareFetchAnswer,
    codes,
    messages,
    st.integers(0, 60_000),
    st.lists(st.tuples(ids, st.lists(fetched, max_size=3)), max_size=3),
    st.lists(st.tuples(st.integers(0, 9), st.text(max_size=20), st.integers(1, 65535), messages), max_size=3),
)


@given(answers, st.sampled_from((1, 2)))
def test_replies(answer: ShareFetchAnswer, version: int) -> None:
    body = b"".join(encode_share_fetch_reply(answer, 5))
    reply = decode_response(API, version, memoryview(body))
    assert (reply.error_code, reply.error_message) == (answer.error, answer.message)
    assert reply.acquisition_lock_timeout == timedelta(milliseconds=answer.lock_ms)
    assert [
        (
            topic.topic_id,
            [
                FetchedShare(
                    each.partition_index,
                    each.error_code,
                    each.error_message,
                    each.acknowledge_error_code,
                    each.acknowledge_error_message,
                    (each.current_leader.leader_id, each.current_leader.leader_epoch),
                    [bytes(each.records)],
                    [
                        (one.first_offset, one.last_offset, one.delivery_count)
                        for one in each.acquired_records
                    ],
                )
                for each in topic.partitions
            ],
        )
        for topic in reply.responses
    ] == [
        (topic_id, [each._replace(batches=[b"".join(each.batches)]) for each in shares])
        for topic_id, shares in answer.topics
    ]
    endpoints = [(each.node_id, each.host, each.port, each.rack) for each in reply.node_endpoints]
    assert endpoints == answer.endpoints


@given(st.binary(max_size=120), st.sampled_from((1, 2)))
def test_anything_else_is_refused(data: bytes, version: int) -> None:
    try:
        decode_share_fetch(memoryview(data), 0, version)
    except KafkaError:
        return


@given(requests, st.integers(0, 400))
def test_what_is_cut_short_or_goes_on_is_refused(fields: dict[str, Any], cut: int) -> None:
    body = encode_request(API, 1, fields)
    with pytest.raises(KafkaError):
        decode_share_fetch(memoryview(body[: min(cut, len(body) - 1)]), 0, 1)
    with pytest.raises(KafkaError):
        decode_share_fetch(memoryview(body + b"\0"), 0, 1)


def test_more_elements_than_one_request_may_have_are_refused_before_they_are_read() -> None:
    many = [{"partition_index": 1, "acknowledgement_batches": []}] * 100_001
    topics = [{"topic_id": uuid.UUID(int=1), "partitions": many}]
    zero = dict.fromkeys(("min_bytes", "max_bytes", "max_records", "batch_size"), 0)
    names = {"group_id": "g", "member_id": "m", "share_session_epoch": 1}
    fields = {**names, "max_wait": timedelta(), **zero, "topics": topics}
    body = encode_request(API, 1, {**fields, "forgotten_topics_data": []})
    with pytest.raises(KafkaError, match="100000 elements"):
        decode_share_fetch(memoryview(body), 0, 1)
