"""ShareAcknowledge by hand says the same as kio's description of it."""

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.api import APIS
from millstream.protocol.codec import decode_request, decode_response, encode_request
from millstream.protocol.share_acknowledge import (
    MOST_IN_SERIES,
    AckBatch,
    AcknowledgeAnswer,
    AckPartition,
    PartitionOutcome,
    _names,
    decode_share_acknowledge,
    encode_share_acknowledge_reply,
    read_series,
)
from millstream.protocol.wire import MalformedRequest

API = next(api for api in APIS.values() if api.name == "share_acknowledge")
offsets = st.integers(0, 2**62)
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
        "topics": st.lists(
            st.fixed_dictionaries(
                {
                    "topic_id": st.uuids().filter(lambda each: each.int),
                    "partitions": st.lists(partitions, max_size=3),
                }
            ),
            max_size=3,
        ),
    }
)


usual = st.fixed_dictionaries(
    {
        "group_id": st.text(max_size=5),
        "member_id": st.text(max_size=200),
        "share_session_epoch": st.integers(-1, 2**31 - 1),
        "topics": st.builds(
            lambda topic_id, index, first, last, kind: [
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {
                            "partition_index": index,
                            "acknowledgement_batches": [
                                {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
                            ],
                        }
                    ],
                }
            ],
            st.uuids().filter(lambda each: each.int),
            st.integers(0, 1000),
            offsets,
            offsets,
            st.integers(-128, 127),
        ),
    }
)


@given(requests | usual, st.booleans(), st.sampled_from((1, 2)))
def test_requests(fields: dict[str, Any], renews: bool, version: int) -> None:
    if version == 2:
        fields = {**fields, "is_renew_ack": renews}
    body = encode_request(API, version, fields)
    by_kio = decode_request(API, version, memoryview(body))
    by_hand = decode_share_acknowledge(memoryview(b"head" + body), 4, version)
    assert by_hand[:3] == (by_kio.group_id, by_kio.member_id, by_kio.share_session_epoch)
    assert by_hand.is_renew_ack == (renews and version == 2)
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


def framed(number: int, fields: dict[str, Any], client_id: bytes | None = b"c", version: int = 2) -> bytes:
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    header = struct.pack(">hhi", API.key, version, number) + name + b"\0"
    request = header + encode_request(API, version, fields)
    return struct.pack(">i", len(request)) + request


@given(
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), usual), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=12),
    st.none() | st.binary(max_size=3),
    st.sampled_from((1, 2)),
    st.binary(max_size=9),
)
def test_a_series_says_what_its_requests_say(
    kinds: list[tuple[int, dict[str, Any]]],
    order: list[int],
    client_id: bytes | None,
    version: int,
    rest: bytes,
) -> None:
    chosen = [kinds[each % len(kinds)] for each in (0, *order)]
    frames = [framed(number, fields, client_id, version) for number, fields in chosen]
    data = memoryview(b"".join(frames) + rest)
    series = read_series(data, len(frames[0]) - 4)
    if series is None:
        return
    count = len(series.numbers)
    assert 2 <= count <= len(frames)
    assert series.client_id == (client_id or b"")
    body = 4 + 8 + 2 + len(series.client_id) + 1
    for at in range(count):
        assert len(frames[at]) == len(frames[0])
        request = decode_share_acknowledge(memoryview(frames[at]), body, version)
        (topic,) = request.topics
        batch = AckBatch(series.firsts[at], series.lasts[at], (1,))
        assert topic.partitions == [AckPartition(topic.partitions[0].partition_index, [batch])]
        assert topic.partitions[0].partition_index == series.request.topics[0].partitions[0].partition_index
        same = (series.request.group_id, series.request.member_id, series.epochs[at], False)
        assert request[:4] == same
        assert series.numbers[at] == chosen[at][0]


def test_a_series_ends_where_something_else_begins() -> None:
    def request(offset: int, kind: int = 1, group: str = "g", index: int = 0) -> bytes:
        batch = {"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]}
        partition = {"partition_index": index, "acknowledgement_batches": [batch]}
        topics = [{"topic_id": uuid.UUID(int=1), "partitions": [partition]}]
        names = {"group_id": group, "member_id": "m", "share_session_epoch": offset}
        return framed(offset, {**names, "is_renew_ack": False, "topics": topics})

    def found(*requests: bytes) -> int:
        series = read_series(memoryview(b"".join(requests)), len(requests[0]) - 4)
        return 0 if series is None else len(series.numbers)

    usual = [request(offset) for offset in range(5)]
    assert found(*usual) == 5
    assert found(usual[0]) == 0
    assert found(*usual, request(5, kind=2), request(6)) == 5
    assert found(*usual, request(5, group="h")) == 5
    assert found(*usual, request(5, index=1)) == 5
    assert found(*usual, request(5)[:-1]) == 5
    assert found(request(0, kind=2), request(1, kind=2)) == 0
    assert found(*usual * 100) == MOST_IN_SERIES


@given(st.binary(min_size=14, max_size=300), st.integers(10, 290))
def test_bytes_that_are_no_series(data: bytes, size: int) -> None:
    if len(data) >= 4 + size:
        assert read_series(memoryview(data), size) is None


@pytest.mark.parametrize("version", [1, 2])
def test_replies(version: int) -> None:
    topic = uuid.UUID(int=5)
    answer = AcknowledgeAnswer(
        lock_ms=30_000,
        topics=[(topic, [PartitionOutcome(3), PartitionOutcome(4, 6, "elsewhere", (2, 7))])],
        endpoints=[(2, "host", 9092, None), (3, "other", 9093, "rack")],
    )
    reply = decode_response(API, version, memoryview(encode_share_acknowledge_reply(version, answer, 5)))
    (found,) = reply.responses
    assert found.topic_id == topic
    assert [
        (each.partition_index, int(each.error_code), each.error_message) for each in found.partitions
    ] == [
        (3, 0, None),
        (4, 6, "elsewhere"),
    ]
    assert (
        found.partitions[1].current_leader.leader_id,
        found.partitions[1].current_leader.leader_epoch,
    ) == (2, 7)
    assert [(each.node_id, each.host, each.port, each.rack) for each in reply.node_endpoints] == [
        (2, "host", 9092, None),
        (3, "other", 9093, "rack"),
    ]


@given(st.binary(max_size=80))
def test_anything_else_is_refused(data: bytes) -> None:
    try:
        decode_share_acknowledge(memoryview(data), 0, 2)
    except MalformedRequest:
        return


def test_only_short_names_are_kept() -> None:
    """4,096 requests with names of 4 MB were kept."""
    batches = [{"first_offset": 5, "last_offset": 6, "acknowledge_types": [1]}]
    partition = {"partition_index": 3, "acknowledgement_batches": batches}
    _names.cache_clear()
    for length, kept in ((10, 1), (5_000, 0)):
        before = _names.cache_info().currsize
        fields = {
            "group_id": "g",
            "member_id": f"{uuid.uuid4()}{'m' * length}",
            "share_session_epoch": 7,
            "is_renew_ack": False,
            "topics": [{"topic_id": uuid.uuid4(), "partitions": [partition]}],
        }
        read = decode_share_acknowledge(memoryview(encode_request(API, 2, fields)), 0, 2)
        assert read.member_id == fields["member_id"]
        assert _names.cache_info().currsize - before == kept
