"""Who writes to a partition, as tools ask for it; and transactions, of which there are none."""

from collections.abc import Iterator

import pytest

from millstream.protocol.errors import ErrorCode
from millstream.testing.disk import SimulatedDisk
from support.inprocess import node_on
from support.raw_client import RawClient, batch_of, create_topic, produce


@pytest.fixture
def client() -> Iterator[RawClient]:
    with node_on(SimulatedDisk()) as node, RawClient(node.listen) as client:
        yield client


def test_idempotent_producers_are_described_with_their_last_batch(client: RawClient) -> None:
    topic = create_topic(client, "described", 2)
    now = 1_700_000_000_000
    batches = (
        batch_of(b"a", b"b", timestamp_ms=now, producer_id=7, producer_epoch=1, base_sequence=0),
        batch_of(b"c", timestamp_ms=now + 5, producer_id=7, producer_epoch=1, base_sequence=2),
        batch_of(b"d", timestamp_ms=now, producer_id=8, producer_epoch=0, base_sequence=0),
        batch_of(b"e"),
    )
    for batch in batches:
        assert produce(client, topic, batch).error_code == ErrorCode.NONE
    wanted = [{"name": topic, "partition_indexes": [0, 1, 2]}, {"name": "nosuch", "partition_indexes": [0]}]
    described, unknown = client.call("describe_producers", 0, topics=wanted).topics
    first, empty, missing = described.partitions
    assert [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp)
        for each in first.active_producers
    ] == [(7, 1, 2, now + 5), (8, 0, 0, now)]
    assert {(each.coordinator_epoch, each.current_txn_start_offset) for each in first.active_producers} == {
        (-1, -1)
    }
    assert (empty.error_code, empty.active_producers) == (ErrorCode.NONE, ())
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_more_producers_than_a_reply_may_hold_are_refused(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.handlers.producers._MOST_PRODUCERS", 1)
    topic = create_topic(client, "crowded")
    produce(client, topic, batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    wanted = [{"name": topic, "partition_indexes": [0, 0]}]
    (described,) = client.call("describe_producers", 0, topics=wanted).topics
    assert [each.error_code for each in described.partitions] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert "at most 1" in described.partitions[1].error_message


def test_there_are_no_transactions(client: RawClient) -> None:
    listed = client.call("list_transactions", 2, state_filters=["Ongoing", "Odd"])
    assert (listed.error_code, listed.transaction_states) == (ErrorCode.NONE, ())
    assert listed.unknown_state_filters == ("Odd",)
    (described,) = client.call("describe_transactions", 0, transactional_ids=["t"]).transaction_states
    assert (described.transactional_id, described.error_code) == ("t", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
