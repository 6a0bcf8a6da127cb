"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords on the wire."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.protocol.compression import Compression
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
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
UNKNOWN_TOPIC, OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH, FENCED_LEADER_EPOCH = 3, 1, 75, 74
POLICY_VIOLATION, UNSUPPORTED_VERSION, CORRUPT_MESSAGE, INVALID_RECORD = 44, 35, 2, 87
# Ten minutes ago: inside every topic's limits, and well apart from the record timestamps that tests make.
NOW = round(time.time() * 1000) - 600_000


def list_offsets(client: RawClient, topic: str, timestamp: int, version: int = 7, **partition: Any) -> Any:
    wanted = {"partition_index": 0, "timestamp": timestamp, **partition}
    reply = client.call("list_offsets", version, topics=[{"name": topic, "partitions": [wanted]}])
    return reply.topics[0].partitions[0]


@pytest.fixture
def written(client: RawClient, topic: str) -> str:
    """Three batches: offsets 0-1 at +0 and +1 ms, 2-3 at +1000 and +1001, 4-5 at +500 and +501."""
    for start in (0, 1000, 500):
        assert produce(client, topic, batch_of(b"a", b"b", timestamp_ms=NOW + start)).error_code == 0
    return topic


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(
    ("timestamp", "offset", "at"),
    [
        (LATEST, 6, -1),
        (EARLIEST, 0, -1),
        (NOW - 5, 0, NOW),
        (NOW + 1, 1, NOW + 1),
        (NOW + 2, 2, NOW + 1000),
        (NOW + 1001, 3, NOW + 1001),
        (NOW + 1002, -1, -1),
    ],
    ids=["latest", "earliest", "before", "exact", "between", "last", "after"],
)
def test_offsets_by_time_at_every_version(
    client: RawClient, written: str, version: int, timestamp: int, offset: int, at: int
) -> None:
    found = list_offsets(client, written, timestamp, version)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, at)
    if version >= 4 and offset >= 0:
        assert found.leader_epoch == 0


def test_the_largest_timestamp_is_found_whatever_order_they_came_in(client: RawClient, written: str) -> None:
    found = list_offsets(client, written, MAX_TIMESTAMP)
    assert (found.error_code, found.offset, found.timestamp) == (0, 3, NOW + 1001)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(EARLIEST_LOCAL, 0), (LATEST_TIERED, -1), (EARLIEST_PENDING_UPLOAD, -1)]
)
def test_questions_about_tiers_are_answered_as_without_tiers(
    client: RawClient, written: str, timestamp: int, offset: int
) -> None:
    found = list_offsets(client, written, timestamp, 11)
    assert (found.error_code, found.offset) == (0, offset)


@pytest.mark.parametrize(
    "timestamp", [LATEST, EARLIEST, MAX_TIMESTAMP, NOW], ids=["latest", "earliest", "largest", "by time"]
)
def test_offsets_of_an_empty_partition(client: RawClient, topic: str, timestamp: int) -> None:
    found = list_offsets(client, topic, timestamp)
    assert (found.error_code, found.offset) == (0, 0 if timestamp in (LATEST, EARLIEST) else -1)


def test_a_timestamp_without_a_meaning_is_refused(client: RawClient, written: str) -> None:
    assert list_offsets(client, written, -99).error_code == UNSUPPORTED_VERSION


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (3, UNKNOWN_LEADER_EPOCH)])
def test_the_leader_epoch_is_checked_when_it_is_given(
    client: RawClient, written: str, epoch: int, error: int
) -> None:
    assert list_offsets(client, written, LATEST, current_leader_epoch=epoch).error_code == error


def test_partitions_that_do_not_exist_fail_one_by_one(client: RawClient, written: str) -> None:
    partitions = [{"partition_index": index, "timestamp": LATEST} for index in (0, 1, -1)]
    reply = client.call(
        "list_offsets", 7, topics=[{"name": name, "partitions": partitions} for name in (written, "nobody")]
    )
    errors = [each.error_code for topic in reply.topics for each in topic.partitions]
    assert errors == [0, UNKNOWN_TOPIC, UNKNOWN_TOPIC, UNKNOWN_TOPIC, UNKNOWN_TOPIC, UNKNOWN_TOPIC]


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_whose_records_are_garbage_fails_the_look_up_but_not_the_connection(
    client: RawClient, topic: str, codec: Compression
) -> None:
    """The broker does not open what it stores, so a producer can store nonsense under a checksum that holds."""
    produce(client, topic, garbage_batch(codec, NOW))
    assert list_offsets(client, topic, NOW).error_code in (CORRUPT_MESSAGE, INVALID_RECORD)
    assert list_offsets(client, topic, MAX_TIMESTAMP).error_code in (CORRUPT_MESSAGE, INVALID_RECORD)
    assert list_offsets(client, topic, LATEST).offset == 2


# -- leader epochs


@pytest.fixture
def two_epochs(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> Iterator[tuple[RawClient, str]]:
    """Offsets 0-1 were written in epoch 0, offset 2 in epoch 1."""
    node = start_node()
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic())
        produce(client, name, batch_of(b"a", b"b"))
    node.crash_and_restart()
    with RawClient(node.listen) as client:
        produce(client, name, batch_of(b"c"))
        yield client, name


def test_where_each_leader_stopped_writing(two_epochs: tuple[RawClient, str]) -> None:
    client, name = two_epochs
    for version in (2, 3, 4):
        for asked, expected in {0: (0, 0, 2), 1: (0, 1, 3), 2: (0, -1, -1), -1: (0, -1, -1)}.items():
            partition = {"partition": 0, "current_leader_epoch": 1, "leader_epoch": asked}
            topics = [{"topic": name, "partitions": [partition]}]
            (answer,) = client.call("offset_for_leader_epoch", version, topics=topics).topics
            found = answer.partitions[0]
            assert (found.error_code, found.leader_epoch, found.end_offset) == expected, (
                f"version {version}, {asked}"
            )
        for current, error in {-1: 0, 1: 0, 0: FENCED_LEADER_EPOCH, 2: UNKNOWN_LEADER_EPOCH}.items():
            partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": 0}
            topics = [
                {"topic": name, "partitions": [partition]},
                {"topic": "nobody", "partitions": [partition]},
            ]
            here, nowhere = client.call("offset_for_leader_epoch", version, topics=topics).topics
            assert here.partitions[0].error_code == error
            assert nowhere.partitions[0].error_code == UNKNOWN_TOPIC
    assert list_offsets(client, name, EARLIEST).leader_epoch == 0
    assert list_offsets(client, name, LATEST).leader_epoch == 1


# -- DeleteRecords


def delete_records(client: RawClient, topic: str, offset: int, version: int = 2) -> Any:
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}
    return (
        client.call("delete_records", version, topics=[wanted], timeout=milliseconds(5000))
        .topics[0]
        .partitions[0]
    )


@pytest.mark.parametrize("version", range(3))
def test_records_before_an_offset_are_gone(client: RawClient, written: str, version: int) -> None:
    deleted = delete_records(client, written, 3, version)
    assert (deleted.error_code, deleted.low_watermark) == (0, 3)
    assert list_offsets(client, written, EARLIEST).offset == 3
    (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(written, 2)))
    assert (fetched.error_code, fetched.log_start_offset) == (OFFSET_OUT_OF_RANGE, 3)
    # The batch that holds offset 3 stays whole; a lookup by time does not find what is deleted of it.
    assert list_offsets(client, written, NOW + 1000).offset == 3
    assert produce(client, written, batch_of(b"x")).log_append_time is None


def test_all_records_are_deleted_up_to_the_high_watermark(client: RawClient, written: str) -> None:
    deleted = delete_records(client, written, -1)
    assert (deleted.error_code, deleted.low_watermark) == (0, 6)
    assert list_offsets(client, written, MAX_TIMESTAMP).offset == -1
    assert produce(client, written, batch_of(b"x")).base_offset == 6


def test_deleting_less_than_before_changes_nothing(client: RawClient, written: str) -> None:
    delete_records(client, written, 4)
    deleted = delete_records(client, written, 2)
    assert (deleted.error_code, deleted.low_watermark) == (0, 4)


@pytest.mark.parametrize("offset", [7, -2, 2**62])
def test_deleting_past_the_end_is_refused(client: RawClient, written: str, offset: int) -> None:
    assert delete_records(client, written, offset).error_code == OFFSET_OUT_OF_RANGE
    assert list_offsets(client, written, EARLIEST).offset == 0


def test_records_of_a_compacted_topic_are_not_deleted(
    client: RawClient, new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), cleanup_policy="compact")
    assert delete_records(client, name, 0).error_code == POLICY_VIOLATION


def test_deleting_from_a_topic_that_does_not_exist_is_refused(client: RawClient) -> None:
    assert delete_records(client, "nobody", 0).error_code == UNKNOWN_TOPIC
