"""Replies in the shape of the newest version, written by us at every version as kio writes them."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.api import API_VERSIONS, APIS, FETCH, METADATA, PRODUCE, Api
from millstream.protocol.codec import encode_response, error_response, message_class
from millstream.protocol.errors import ErrorCode
from millstream.protocol.message_shape import shape_of
from support.kio_messages import build, decode, encode, messages

COLD = [api for api in APIS.values() if api.key not in (PRODUCE, FETCH, METADATA, API_VERSIONS)]


def lowered(value: Any, target: Any) -> Any:
    """The reply as kio's class of an older version: what that version lacks is left out, null becomes empty."""
    arguments = {}
    for field in shape_of(target):
        content = getattr(value, field.name, field.default)
        if field.entity and isinstance(content, tuple):
            content = tuple(lowered(element, field.entity) for element in content)
        elif field.entity and content is not None:
            content = lowered(content, field.entity)
        elif content is None and not field.nullable:
            content = () if field.is_array else field.default
        elif field.kafka_type == "error_code" and type(content) is int:
            content = ErrorCode(content)
        arguments[field.name] = content
    return target(**arguments)


@pytest.mark.parametrize("api", COLD, ids=lambda api: api.name)
@settings(max_examples=3)
@given(data=st.data())
def test_a_reply_has_the_bytes_that_kio_writes_at_every_version(api: Api, data: st.DataObject) -> None:
    response = data.draw(messages(api.name, api.max_version, "response"))
    for version in range(api.min_version, api.max_version + 1):
        expected = encode(lowered(response, message_class(api.name, version, "response")))
        assert encode_response(api, version, response) == expected, f"version {version}"


def test_anything_with_the_attributes_can_be_written() -> None:
    @dataclasses.dataclass
    class Answer:
        error_code: ErrorCode = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        cluster_id: str = "c"

    written = decode("describe_cluster", 1, "response", encode_response(APIS[60], 1, Answer()))
    assert (written.error_code, written.cluster_id, written.brokers) == (31, "c", ())


def test_what_became_nullable_later_is_empty_in_the_versions_before() -> None:
    topic = {"name": None, "topic_id": None, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}
    response = build("delete_topics", 6, "response", responses=[topic])
    assert (
        decode("delete_topics", 6, "response", encode_response(APIS[20], 6, response)).responses[0].name
        is None
    )
    assert (
        decode("delete_topics", 5, "response", encode_response(APIS[20], 5, response)).responses[0].name == ""
    )


@pytest.mark.parametrize("api", COLD, ids=lambda api: api.name)
def test_a_reply_that_only_says_what_went_wrong_is_readable_at_every_version(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        response = error_response(api, version, ErrorCode.INVALID_REQUEST, "no")
        if response is None:
            fields = shape_of(message_class(api.name, version, "response"))
            assert "error_code" not in {field.name for field in fields}
            continue
        read = decode(api.name, version, "response", encode_response(api, version, response))
        assert read.error_code == ErrorCode.INVALID_REQUEST
