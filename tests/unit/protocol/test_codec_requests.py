"""Requests of every API and version, written by kio and read by us in the shape of the newest version."""

import dataclasses
import datetime
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.api import API_VERSIONS, APIS, FETCH, METADATA, PRODUCE, Api
from millstream.protocol.codec import decode_request, message_class
from millstream.protocol.limits import LIMITS, TooManyElements
from millstream.protocol.message_shape import shape_of
from millstream.protocol.wire import MalformedRequest, uvarint
from support.kio_messages import build, encode, messages

BY_HAND = (PRODUCE, FETCH, METADATA)
GROUPS = (
    Api(8, "offset_commit", 2, 10, 8),
    Api(9, "offset_fetch", 1, 10, 6),
    Api(10, "find_coordinator", 0, 6, 3),
    Api(11, "join_group", 0, 9, 6),
    Api(12, "heartbeat", 0, 4, 4),
    Api(13, "leave_group", 0, 5, 4),
    Api(14, "sync_group", 0, 5, 4),
    Api(15, "describe_groups", 0, 6, 5),
    Api(16, "list_groups", 0, 5, 3),
    Api(42, "delete_groups", 0, 2, 2),
    Api(47, "offset_delete", 0, 0, 32767),
    Api(68, "consumer_group_heartbeat", 0, 1, 0),
    Api(69, "consumer_group_describe", 0, 1, 0),
)
COLD = [api for api in {**{api.key: api for api in GROUPS}, **APIS}.values() if api.key not in BY_HAND]
# Fields that took the place of others; what becomes of those is tested one by one.
LIFTED = {"topics", "coordinator_keys", "groups", "members"}
EVERY_VERSION = [(api, version) for api in COLD for version in range(api.min_version, api.max_version + 1)]


def name_of(value: object) -> str:
    return value.name if isinstance(value, Api) else f"v{value}"


def api_named(name: str) -> Api:
    return next(api for api in COLD if api.name == name)


def assert_kept(sent: Any, read: Any) -> None:
    """Every field of what was sent has its value in what was read."""
    if dataclasses.is_dataclass(sent):
        for field in dataclasses.fields(sent):
            assert_kept(getattr(sent, field.name), getattr(read, field.name))
    elif isinstance(sent, tuple):
        assert len(sent) == len(read)
        for one, other in zip(sent, read, strict=True):
            assert_kept(one, other)
    elif sent == uuid.UUID(int=0):
        assert read in (None, sent)
    else:
        assert read == sent


def request_of(name: str, version: int, **fields: Any) -> memoryview:
    return memoryview(encode(build(name, version, **fields)))


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=name_of)
@settings(max_examples=3)
@given(data=st.data())
def test_fields_keep_their_values_and_those_of_later_versions_get_their_defaults(
    api: Api, version: int, data: st.DataObject
) -> None:
    sent = data.draw(messages(api.name, version, "request"))
    read = decode_request(api, version, memoryview(encode(sent)))
    assert_kept(sent, read)
    sent_names = {field.name for field in dataclasses.fields(sent)}
    for field in shape_of(message_class(api.name, api.max_version, "request")):
        if field.name not in sent_names | LIFTED:
            assert getattr(read, field.name) == field.default
    if version == api.max_version:
        assert isinstance(read, type(sent))


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_to_delete_were_plain_names_before_topic_ids(version: int) -> None:
    timeout = datetime.timedelta(seconds=3)
    request = request_of("delete_topics", version, topic_names=("a", "b"), timeout=timeout)
    read = decode_request(api_named("delete_topics"), version, request)
    assert [(topic.name, topic.topic_id) for topic in read.topics] == [("a", None), ("b", None)]
    assert read.timeout == timeout


@pytest.mark.parametrize("version", range(4))
def test_one_key_of_an_old_find_coordinator_becomes_a_list_of_one(version: int) -> None:
    fields: dict[str, Any] = {"key_type": 1} if version else {}
    read = decode_request(
        api_named("find_coordinator"), version, request_of("find_coordinator", version, key="me", **fields)
    )
    assert read.coordinator_keys == ("me",)
    assert read.key_type == (1 if version else 0)


@pytest.mark.parametrize("version", range(1, 8))
def test_one_group_of_an_old_offset_fetch_becomes_a_list_of_one(version: int) -> None:
    topics = [{"name": "t", "partition_indexes": (0, 7)}]
    request = request_of("offset_fetch", version, group_id="g", topics=topics)
    read = decode_request(api_named("offset_fetch"), version, request)
    (group,) = read.groups
    assert (group.group_id, group.member_id, group.member_epoch) == ("g", None, -1)
    assert [(each.name, each.topic_id, each.partition_indexes) for each in group.topics] == [
        ("t", None, (0, 7))
    ]


@pytest.mark.parametrize("version", range(2, 8))
def test_an_old_offset_fetch_of_all_topics_stays_one_of_all_topics(version: int) -> None:
    request = request_of("offset_fetch", version, group_id="g", topics=None)
    (group,) = decode_request(api_named("offset_fetch"), version, request).groups
    assert group.topics is None


@pytest.mark.parametrize("version", range(3))
def test_the_member_of_an_old_leave_group_becomes_a_list_of_one(version: int) -> None:
    request = request_of("leave_group", version, group_id="g", member_id="m")
    (member,) = decode_request(api_named("leave_group"), version, request).members
    assert (member.member_id, member.group_instance_id) == ("m", None)


@pytest.mark.parametrize("version", range(2, 10))
@settings(max_examples=3)
@given(data=st.data())
def test_topics_of_an_old_offset_commit_keep_their_names_though_the_newest_has_ids(
    version: int, data: st.DataObject
) -> None:
    sent = data.draw(messages("offset_commit", version, "request"))
    read = decode_request(api_named("offset_commit"), version, memoryview(encode(sent)))
    assert [(topic.name, topic.topic_id) for topic in read.topics] == [
        (topic.name, None) for topic in sent.topics
    ]


@settings(max_examples=8)
@given(sent=messages("create_topics", 7, "request"))
def test_nothing_of_a_decoded_request_refers_to_the_buffer_it_was_read_from(sent: Any) -> None:
    buffer = bytearray(encode(sent))
    read = decode_request(api_named("create_topics"), 7, memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert_kept(sent, read)


@pytest.mark.parametrize("version", range(12, 19))
@settings(max_examples=8)
@given(data=st.data())
def test_tagged_fields_are_read(version: int, data: st.DataObject) -> None:
    # Of the requests served, only Fetch has tagged fields.
    sent = data.draw(messages("fetch", version, "request"))
    assert_kept(sent, decode_request(APIS[FETCH], version, memoryview(encode(sent))))


# -- bytes that lie


@pytest.mark.parametrize("count", [2, 1000, 2**27, 2**31 - 1])
def test_an_array_that_claims_more_than_is_there_is_refused_before_memory_is_taken(count: int) -> None:
    with pytest.raises(MalformedRequest, match=r"claims|expected"):
        decode_request(APIS[19], 4, memoryview(struct.pack(">i", count) + b"\0"))
    with pytest.raises(MalformedRequest, match=r"claims|expected"):
        decode_request(APIS[19], 7, memoryview(uvarint(count + 1) + b"\0"))


def test_a_variable_length_number_without_an_end_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="too long"):
        decode_request(APIS[19], 7, memoryview(b"\xff" * 20))


def test_a_request_of_more_elements_than_its_api_takes_is_refused() -> None:
    names = LIMITS["delete_topics"].elements + 1
    body = uvarint(names + 1) + b"\1" * names + bytes(5)
    with pytest.raises(TooManyElements, match="10000"):
        decode_request(APIS[20], 5, memoryview(body))


def test_many_tagged_fields_are_refused() -> None:
    body = b"\1" + bytes(4) + b"\0" + uvarint(33) + b"\x63\0" * 33
    with pytest.raises(TooManyElements, match="33 tagged fields"):
        decode_request(APIS[19], 7, memoryview(body))


def test_null_where_the_protocol_allows_none_is_refused_by_the_fields_name() -> None:
    with pytest.raises(MalformedRequest, match="topics is null"):
        decode_request(APIS[19], 2, memoryview(struct.pack(">i", -1) + bytes(5)))


def test_bytes_after_the_request_are_refused() -> None:
    body = memoryview(bytes(request_of("describe_cluster", 2)) + b"\0")
    with pytest.raises(MalformedRequest, match="leaves 1 bytes unread"):
        decode_request(APIS[60], 2, body)


def test_unknown_tagged_fields_are_skipped() -> None:
    body = uvarint(2) + b"x" + uvarint(2) + b"y" + b"\1" + b"\x63" + b"\3abc"
    read = decode_request(APIS[API_VERSIONS], 4, memoryview(body))
    assert (read.client_software_name, read.client_software_version) == ("x", "y")


@pytest.mark.parametrize("claimed", [0, 2, 5])
def test_a_tagged_field_whose_size_does_not_fit_its_content_is_refused(claimed: int) -> None:
    head = bytes(request_of("fetch", 12))[:-1]
    # Tag 0 is the cluster's id, a string: here of one byte, so that the field has two.
    body = head + b"\1\0" + uvarint(claimed) + b"\2a" + bytes(3)
    if claimed == 2:
        body = body[:-3]
        assert decode_request(APIS[FETCH], 12, memoryview(body)).cluster_id == "a"
    else:
        with pytest.raises(MalformedRequest):
            decode_request(APIS[FETCH], 12, memoryview(body))


@settings(max_examples=40)
@given(data=st.data())
def test_a_request_cut_anywhere_is_refused(data: st.DataObject) -> None:
    whole = request_of("find_coordinator", 3, key="group", key_type=0)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(MalformedRequest):
        decode_request(api_named("find_coordinator"), 3, whole[:size])
