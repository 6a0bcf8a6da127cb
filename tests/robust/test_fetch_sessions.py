"""Incremental fetch sessions (KIP-227) on the wire."""

from collections.abc import Callable
from typing import Any

import pytest

from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    milliseconds,
    produce,
)

ID_NOT_FOUND, INVALID_EPOCH, TOPIC_ID_ERROR = 70, 71, 106
UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.fixture
def name(client: RawClient, new_topic: Callable[[], str]) -> str:
    return create_topic(client, new_topic(), partitions=3)


def open_session(client: RawClient, name: str, *offsets: int, version: int = 12) -> int:
    reply = client.call("fetch", version, **fetch_fields(name, *offsets, session_epoch=0))
    assert reply.error_code == 0
    assert len(fetched_partitions(reply)) == len(offsets), "the first reply names every partition"
    assert reply.session_id > 0
    return int(reply.session_id)


def go_on(client: RawClient, session_id: int, epoch: int, version: int = 12, **fields: Any) -> Any:
    return client.call(
        "fetch", version, session_id=session_id, session_epoch=epoch, min_bytes=0, max_bytes=1 << 20, **fields
    )


def indexes(reply: Any) -> list[int]:
    return [each.partition_index for each in fetched_partitions(reply)]


def wanted(name: str, index: int, offset: int) -> dict[str, Any]:
    return {
        "topic": name,
        "partitions": [{"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}],
    }


@pytest.mark.parametrize("version", [7, 11, 12])
def test_a_session_tells_only_what_changed(client: RawClient, name: str, version: int) -> None:
    session_id = open_session(client, name, 0, 0, 0, version=version)
    assert indexes(go_on(client, session_id, 1, version)) == []
    produce(client, name, batch_of(b"a"), partition=1)
    reply = go_on(client, session_id, 2, version)
    assert (reply.session_id, indexes(reply)) == (session_id, [1])
    # The client has not moved on, so the record is still news.
    assert indexes(go_on(client, session_id, 3, version)) == [1]
    assert indexes(go_on(client, session_id, 4, version, topics=[wanted(name, 1, 1)])) == []
    assert indexes(go_on(client, session_id, 5, version)) == []


def test_partitions_join_and_leave_a_session(client: RawClient, name: str) -> None:
    for partition in range(3):
        produce(client, name, batch_of(b"a"), partition=partition)
    session_id = open_session(client, name, 0)
    assert indexes(go_on(client, session_id, 1, topics=[wanted(name, 2, 0)])) == [0, 2]
    gone = [{"topic": name, "partitions": (0,)}]
    assert indexes(go_on(client, session_id, 2, forgotten_topics_data=gone)) == [2]
    assert (
        indexes(go_on(client, session_id, 3, forgotten_topics_data=[{"topic": name, "partitions": (1, 2)}]))
        == []
    )
    assert indexes(go_on(client, session_id, 4, topics=[wanted(name, 0, 0)])) == [0]


def test_an_error_is_told_again_every_time(client: RawClient, name: str) -> None:
    reply = client.call("fetch", 12, **fetch_fields(f"{name}-not-there", 0, session_epoch=0))
    for epoch in (1, 2):
        reply = go_on(client, reply.session_id, epoch)
        assert [each.error_code for each in fetched_partitions(reply)] == [UNKNOWN_TOPIC_OR_PARTITION]


def test_a_session_waits_like_any_fetch(
    client: RawClient, connect: Callable[[], RawClient], name: str
) -> None:
    session_id = open_session(client, name, 0, 0, 0)
    waiting = {"session_id": session_id, "session_epoch": 1, "max_wait": milliseconds(15_000), "min_bytes": 1}
    client.send("fetch", 12, max_bytes=1 << 20, **waiting)
    assert not client.has_reply(within_s=0.2)
    produce(connect(), name, batch_of(b"a"), partition=2)
    assert indexes(client.receive()) == [2]


@pytest.mark.parametrize("epoch", [2, 7, 2**31 - 1])
def test_a_wrong_epoch_is_refused_and_the_session_goes_on(client: RawClient, name: str, epoch: int) -> None:
    session_id = open_session(client, name, 0)
    reply = go_on(client, session_id, epoch)
    assert (reply.error_code, reply.session_id, reply.responses) == (INVALID_EPOCH, 0, ())
    assert go_on(client, session_id, 1).error_code == 0


@pytest.mark.parametrize("session_id", [-1, 2**31 - 1])
def test_an_unknown_session_is_refused(client: RawClient, session_id: int) -> None:
    assert go_on(client, session_id, 1).error_code == ID_NOT_FOUND


def test_a_session_can_be_closed(client: RawClient, name: str) -> None:
    session_id = open_session(client, name, 0)
    reply = client.call("fetch", 12, **fetch_fields(name, 0, session_id=session_id, session_epoch=-1))
    assert (reply.error_code, reply.session_id, indexes(reply)) == (0, 0, [0])
    assert go_on(client, session_id, 1).error_code == ID_NOT_FOUND


def test_a_session_can_be_replaced(client: RawClient, name: str) -> None:
    session_id = open_session(client, name, 0)
    reply = client.call("fetch", 12, **fetch_fields(name, 0, 0, session_id=session_id, session_epoch=0))
    assert reply.session_id not in (0, session_id)
    assert go_on(client, session_id, 1).error_code == ID_NOT_FOUND
    assert go_on(client, reply.session_id, 1).error_code == 0


def test_without_a_session_everything_is_told_every_time(client: RawClient, name: str) -> None:
    for _ in range(2):
        reply = client.call("fetch", 12, **fetch_fields(name, 0, 0, 0))
        assert (reply.session_id, indexes(reply)) == (0, [0, 1, 2])


def test_sessions_by_topic_id(client: RawClient, name: str) -> None:
    topic_id = client.call("metadata", 12, topics=[{"name": name}]).topics[0].topic_id
    topic = {"topic_id": topic_id, "partitions": [{"partition": 1, "partition_max_bytes": 1 << 20}]}
    reply = client.call("fetch", 17, session_epoch=0, max_bytes=1 << 20, topics=[topic])
    assert (indexes(reply), reply.responses[0].topic_id) == ([1], topic_id)
    produce(client, name, batch_of(b"a"), partition=1)
    changed = go_on(client, reply.session_id, 1, 17)
    assert (indexes(changed), changed.responses[0].topic_id) == ([1], topic_id)
    forgotten = [{"topic_id": topic_id, "partitions": (1,)}]
    assert indexes(go_on(client, reply.session_id, 2, 17, forgotten_topics_data=forgotten)) == []


@pytest.mark.parametrize(("opened_with", "used_with"), [(12, 13), (13, 12)])
def test_a_session_keeps_its_way_of_naming_topics(
    client: RawClient, name: str, opened_with: int, used_with: int
) -> None:
    session_id = client.call("fetch", opened_with, session_epoch=0).session_id
    assert go_on(client, session_id, 1, used_with).error_code == TOPIC_ID_ERROR


def test_a_deleted_topic_of_a_session_by_id_is_told(client: RawClient, name: str) -> None:
    topic_id = client.call("metadata", 12, topics=[{"name": name}]).topics[0].topic_id
    topic = {"topic_id": topic_id, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}
    session_id = client.call("fetch", 13, session_epoch=0, max_bytes=1 << 20, topics=[topic]).session_id
    client.call("delete_topics", 6, topics=[{"name": name}])
    reply = go_on(client, session_id, 1, 13)
    assert [each.error_code for each in fetched_partitions(reply)] == [100]


def test_sessions_of_a_restarted_node_are_not_mistaken_for_new_ones(client: RawClient, name: str) -> None:
    """Ids are not counted from one: a client that missed the restart must not meet somebody else's session."""
    assert {open_session(client, name, 0) for _ in range(3)}.isdisjoint(range(1, 100))
