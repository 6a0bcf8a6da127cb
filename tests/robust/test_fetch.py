"""Fetch on the wire: how much comes, when it comes, and what is refused."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from millstream.protocol.record_batch import iter_batches
from support.metrics import metric
from support.node import NodeProcess
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    milliseconds,
    node_address,
    produce,
)
from support.waiting import wait_for

LONG_MS = 300_000
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_OUT_OF_RANGE = 74, 75, 1
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, STALE_BROKER_EPOCH = 3, 100, 77


def batches(records: bytes) -> list[int]:
    """First offsets of the batches; they must be whole and sound."""
    return [header.base_offset for _, header in iter_batches(memoryview(records or b""))]


def fetch_one(client: RawClient, topic: str, offset: int, version: int = 12, **options: Any) -> Any:
    (partition,) = fetched_partitions(client.call("fetch", version, **fetch_fields(topic, offset, **options)))
    return partition


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_returns_the_records(client: RawClient, topic: str, version: int) -> None:
    produce(client, topic, batch_of(b"a", b"b"))
    produce(client, topic, batch_of(b"c"))
    fetched = fetch_one(client, topic, 0, version)
    assert (fetched.error_code, fetched.high_watermark, fetched.last_stable_offset) == (0, 3, 3)
    assert batches(fetched.records) == [0, 2]


@pytest.mark.parametrize("version", range(13, 19))
def test_from_version_13_on_topics_are_named_by_id(client: RawClient, topic: str, version: int) -> None:
    produce(client, topic, batch_of(b"a"))
    topic_id = client.call("metadata", 12, topics=[{"name": topic}]).topics[0].topic_id
    fields = fetch_fields(topic, 0)
    fields["topics"][0] = {"topic_id": topic_id, "partitions": fields["topics"][0]["partitions"]}
    (answer,) = client.call("fetch", version, **fields).responses
    assert answer.topic_id == topic_id
    assert batches(answer.partitions[0].records) == [0]


def test_an_unknown_topic_id_is_told_as_such(client: RawClient) -> None:
    partitions = [{"partition": 0, "partition_max_bytes": 100}]
    reply = client.call("fetch", 13, topics=[{"topic_id": uuid.uuid4(), "partitions": partitions}])
    assert [each.error_code for each in fetched_partitions(reply)] == [UNKNOWN_TOPIC_ID]


def test_an_offset_inside_a_batch_brings_the_whole_batch(client: RawClient, topic: str) -> None:
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    assert batches(fetch_one(client, topic, 2).records) == [0]


@pytest.mark.parametrize("offset", [-1, -5, 4, 2**62])
def test_an_offset_outside_the_log_is_out_of_range(client: RawClient, topic: str, offset: int) -> None:
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    fetched = fetch_one(client, topic, offset, max_wait_ms=LONG_MS)
    assert fetched.error_code == OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("name", "index"), [("no-such-topic", 0), (None, 5), (None, -1)])
def test_an_unknown_partition_is_answered_at_once(
    client: RawClient, topic: str, name: str | None, index: int
) -> None:
    wanted = {"topic": name or topic, "partitions": [{"partition": index, "partition_max_bytes": 1}]}
    reply = client.call(
        "fetch", 12, max_wait=milliseconds(LONG_MS), min_bytes=1, max_bytes=1, topics=[wanted]
    )
    assert [each.error_code for each in fetched_partitions(reply)] == [UNKNOWN_TOPIC_OR_PARTITION]


# -- how much


def test_max_bytes_cuts_after_whole_batches_but_never_before_the_first(client: RawClient, topic: str) -> None:
    size = len(batch_of(b"x" * 1000))
    for _ in range(5):
        produce(client, topic, batch_of(b"x" * 1000))
    assert batches(fetch_one(client, topic, 0, max_bytes=3 * size).records) == [0, 1, 2]
    assert batches(fetch_one(client, topic, 0, max_bytes=3 * size - 1).records) == [0, 1]
    assert batches(fetch_one(client, topic, 2, max_bytes=1).records) == [2]
    assert batches(fetch_one(client, topic, 2, max_bytes=0).records) == [2]


def test_max_bytes_of_the_request_is_shared_by_its_partitions(
    client: RawClient, new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), partitions=3)
    batch = batch_of(b"x" * 1000)
    for partition in range(3):
        produce(client, name, batch, partition=partition)
        produce(client, name, batch, partition=partition)
    fields = fetch_fields(name, 0, 0, 0, max_bytes=1 << 20)
    fields["max_bytes"] = 3 * len(batch)
    fetched = fetched_partitions(client.call("fetch", 12, **fields))
    assert [batches(each.records) for each in fetched] == [[0, 1], [0], []]


def test_a_large_reply_arrives_whole(client: RawClient, topic: str) -> None:
    for _ in range(8):
        produce(client, topic, batch_of(b"y" * 900_000))
    assert batches(fetch_one(client, topic, 0).records) == list(range(8))


# -- when


def test_a_fetch_waits_for_its_max_wait_and_then_returns_nothing(client: RawClient, topic: str) -> None:
    started = time.monotonic()
    fetched = fetch_one(client, topic, 0, max_wait_ms=300)
    assert time.monotonic() - started >= 0.28
    assert (fetched.error_code, fetched.records or b"", fetched.high_watermark) == (0, b"", 0)


def test_a_fetch_with_no_patience_returns_at_once(client: RawClient, topic: str) -> None:
    assert not fetch_one(client, topic, 0, max_wait_ms=0, min_bytes=1 << 30).records


def test_a_waiting_fetch_returns_when_a_record_comes(
    client: RawClient, connect: Callable[[], RawClient], topic: str
) -> None:
    client.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=LONG_MS))
    assert not client.has_reply(within_s=0.2)
    produce(connect(), topic, batch_of(b"a"))
    (fetched,) = fetched_partitions(client.receive())
    assert batches(fetched.records) == [0]


def test_min_bytes_counts_what_comes_in_several_partitions(
    client: RawClient, connect: Callable[[], RawClient], new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), partitions=3)
    producer = connect()
    batch = batch_of(b"x" * 500)
    produce(producer, name, batch, partition=1)
    client.send("fetch", 12, **fetch_fields(name, 0, 0, 0, max_wait_ms=LONG_MS, min_bytes=3 * len(batch)))
    produce(producer, name, batch, partition=2)
    assert not client.has_reply(within_s=0.2)
    produce(producer, name, batch, partition=0)
    assert [batches(each.records) for each in fetched_partitions(client.receive())] == [[0], [0], [0]]


def test_hundreds_of_waiting_fetches_are_all_answered_by_one_record(
    broker: NodeProcess, client: RawClient, topic: str
) -> None:
    waiting = [RawClient(broker.listen) for _ in range(200)]
    try:
        for each in waiting:
            each.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=LONG_MS))
        produce(client, topic, batch_of(b"a"))
        for each in waiting:
            assert batches(fetched_partitions(each.receive())[0].records) == [0]
    finally:
        for each in waiting:
            each.close()


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(
    client: RawClient, connect: Callable[[], RawClient], topic: str
) -> None:
    client.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=LONG_MS))
    assert not client.has_reply(within_s=0.1)
    connect().call("delete_topics", 6, topics=[{"name": topic}])
    (fetched,) = fetched_partitions(client.receive())
    assert fetched.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_waiting_fetches_of_clients_that_left_are_forgotten(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    """A node of its own: fetches of others would come and go in the count."""
    node = start_node()

    def waiting() -> float:
        return metric(node, "millstream_purgatory_size", kind="fetch")

    gone = [RawClient(node.listen) for _ in range(20)]
    topic = create_topic(gone[0], new_topic())
    for number, each in enumerate(gone):
        each.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=600_000))
        if number % 2:
            each.send("metadata", 12, topics=[])
    wait_for(waiting, lambda count: count == 20, "fetches wait")
    for number, each in enumerate(gone):
        each.reset() if number % 3 else each.close()
    wait_for(waiting, lambda count: count == 0, "nobody waits any more")


# -- epochs


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, 0), (0, 0), (1, UNKNOWN_LEADER_EPOCH), (99, UNKNOWN_LEADER_EPOCH)]
)
def test_the_leader_epoch_is_checked_when_it_is_given(
    client: RawClient, topic: str, version: int, epoch: int, error: int
) -> None:
    fields = fetch_fields(topic, 0)
    fields["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
    (fetched,) = fetched_partitions(client.call("fetch", version, **fields))
    assert fetched.error_code == error


def test_a_reader_of_lost_records_learns_where_its_history_ends(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    node = start_node()
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic())
        produce(client, name, batch_of(b"a", b"b", b"c"))
    node.crash_and_restart()
    with RawClient(node.listen) as client:
        assert produce(client, name, batch_of(b"d")).base_offset == 3
        (known,) = client.call("metadata", 12, topics=[{"name": name}]).topics
        assert known.partitions[0].leader_epoch == 1
        fields = fetch_fields(name, 3)
        wanted = fields["topics"][0]["partitions"][0]
        wanted["last_fetched_epoch"] = 0
        (fetched,) = fetched_partitions(client.call("fetch", 12, **fields))
        assert batches(fetched.records) == [3]
        wanted["fetch_offset"] = 4
        (fetched,) = fetched_partitions(client.call("fetch", 12, **fields))
        assert (fetched.diverging_epoch.epoch, fetched.diverging_epoch.end_offset) == (0, 3)
        assert not fetched.records
        wanted["current_leader_epoch"] = 0
        (fetched,) = fetched_partitions(client.call("fetch", 12, **fields))
        assert fetched.error_code == FENCED_LEADER_EPOCH


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_both_isolation_levels_see_records_without_transactions(
    client: RawClient, topic: str, isolation_level: int
) -> None:
    produce(client, topic, batch_of(b"a"))
    fetched = fetch_one(client, topic, 0, isolation_level=isolation_level)
    assert batches(fetched.records) == [0]


def test_a_follower_that_is_no_broker_of_the_cluster_is_refused(broker: NodeProcess, topic: str) -> None:
    fields = fetch_fields(topic, 0, replica_id=2)
    with RawClient(node_address(broker.listen)) as client:
        reply = client.call("fetch", 12, **fields)
    assert reply.error_code == STALE_BROKER_EPOCH
    assert not fetched_partitions(reply)
    with RawClient(broker.listen) as client:
        client.send("fetch", 12, **fields)
        assert client.is_closed_by_broker()
