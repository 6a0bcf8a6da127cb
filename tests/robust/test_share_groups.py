"""Share sessions and acknowledgements that no real client sends: the right code, and nothing lost."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from millstream.client import QueueAdmin
from millstream.protocol.errors import ErrorCode
from support.metrics import metric
from support.node import NodeProcess
from support.raw_client import RawClient
from support.raw_share_consumer import RawShareConsumer
from support.topics import admin_for, create_topic

ACCEPT, RENEW = 1, 4
COUNT = 10


@pytest.fixture
def consumers(broker: NodeProcess, new_topic: Callable[[], str]) -> Iterator[Callable[..., RawShareConsumer]]:
    """Consumers of a group that begins with the first of ten records."""
    topic = create_topic(admin_for(broker.bootstrap), new_topic(), 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    with QueueAdmin(broker.bootstrap) as admin:
        admin.alter_group_configs(f"{topic}-g", {"share.auto.offset.reset": "earliest"})
        topic_id = admin.topic_id(topic)
    made: list[RawShareConsumer] = []

    def make(group: str = f"{topic}-g", member: str | None = None) -> RawShareConsumer:
        made.append(RawShareConsumer(broker.bootstrap, group, topic_id, member))
        return made[-1]

    yield make
    for each in made:
        each.client.close()


def test_sessions_begin_with_a_fetch_and_count(consumers: Callable[..., RawShareConsumer]) -> None:
    consumer = consumers()
    assert consumer.fetch(epoch=7).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert consumer.acknowledge(epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert consumer.fetch([(0, 0, [ACCEPT])], epoch=0).error_code == ErrorCode.INVALID_REQUEST
    consumer.take()
    assert consumer.fetch(epoch=99).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert consumer.acknowledge(epoch=99).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert consumer.fetch(epoch=-1).error_code == ErrorCode.NONE
    assert consumer.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_acknowledgements_of_what_is_not_the_members(consumers: Callable[..., RawShareConsumer]) -> None:
    consumer, other, stranger = consumers(), consumers(), consumers("another group")
    assert consumer.take(5)[-1][1] == 4
    other.take(2)
    stranger.fetch()
    state, request = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
    assert other.code((0, 0, [ACCEPT])) == state
    assert consumer.code((5, 5, [ACCEPT])) == state
    assert consumer.code((0, 9_999, [ACCEPT])) == request
    # It begins at the end: for that group 0 was settled long ago, and for this one it changes nothing.
    assert stranger.code((0, 0, [ACCEPT])) == ErrorCode.NONE
    # All of a partition or nothing: 0 is still to be acknowledged afterwards.
    assert consumer.code((0, 0, [ACCEPT]), (6, 6, [ACCEPT])) == state
    assert consumer.code((1, 1, [ACCEPT])) == ErrorCode.NONE
    assert consumer.code((1, 1, [ACCEPT])) == state
    assert consumer.code((0, 0, [ACCEPT])) == ErrorCode.NONE
    # Before the start: settled long ago.
    assert consumer.code((0, 1, [ACCEPT])) == ErrorCode.NONE


def test_acknowledgements_that_make_no_sense(consumers: Callable[..., RawShareConsumer]) -> None:
    consumer = consumers()
    consumer.take()
    for acks in (
        [(3, 2, [ACCEPT])],
        [(-1, 0, [ACCEPT])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 2, [])],
        [(0, 0, [9])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
        [(2, 3, [ACCEPT]), (1, 1, [ACCEPT])],
        [(2, 3, [ACCEPT]), (3, 4, [ACCEPT])],
        [(2**62, 2**62, [ACCEPT])],
    ):
        assert consumer.code(*acks) == ErrorCode.INVALID_REQUEST, acks
    assert consumer.code((0, 0, [RENEW]), renews=True) == ErrorCode.NONE
    assert consumer.code((0, COUNT - 1, [ACCEPT])) == ErrorCode.NONE


@pytest.mark.parametrize("fetches", [False, True])
def test_a_partition_that_is_named_twice_is_settled_as_a_whole(
    consumers: Callable[..., RawShareConsumer], fetches: bool
) -> None:
    """The last word was the answer for both: a client took for settled what was refused."""
    consumer = consumers()
    assert consumer.take(5)[-1][1] == 4

    def code(*acks: tuple[int, int, list[int]]) -> int:
        topics = [topic for each in acks for topic in consumer.topics([each])]
        if not fetches:
            reply = consumer.acknowledge(topics=topics)
            return int(reply.responses[0].partitions[0].error_code)
        reply = consumer.fetch(topics=topics, records=0)
        return int(reply.responses[0].partitions[0].acknowledge_error_code)

    assert code((9_999, 9_999, [ACCEPT]), (0, 0, [ACCEPT])) == ErrorCode.INVALID_REQUEST
    assert code((1, 1, [ACCEPT]), (0, 0, [ACCEPT])) == ErrorCode.INVALID_REQUEST, "not ascending"
    assert consumer.code((1, 1, [ACCEPT])) == ErrorCode.NONE
    assert code((1, 1, [ACCEPT]), (2, 2, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert code((0, 0, [ACCEPT]), (2, 2, [ACCEPT])) == ErrorCode.NONE
    assert consumer.code((3, 4, [ACCEPT])) == ErrorCode.NONE


def test_a_fetch_that_renews_reads_nothing(consumers: Callable[..., RawShareConsumer]) -> None:
    consumer = consumers()
    consumer.take(1)
    assert consumer.fetch(is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST
    nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0}
    reply = consumer.fetch([(0, 0, [RENEW])], is_renew_ack=True, **nothing)
    assert (reply.error_code, reply.responses[0].partitions[0].acknowledge_error_code) == (0, 0)


def test_a_topic_that_does_not_exist(consumers: Callable[..., RawShareConsumer]) -> None:
    nowhere = consumers("g")
    nowhere.topic_id = uuid.uuid4()
    assert nowhere.fetch().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("closes", [False, True])
def test_what_a_session_held_goes_to_others_with_its_end(
    broker: NodeProcess, consumers: Callable[..., RawShareConsumer], closes: bool
) -> None:
    consumer, other = consumers(), consumers()
    with QueueAdmin(broker.bootstrap) as admin:
        admin.alter_group_configs(consumer.group, {"share.record.lock.duration.ms": "60000"})
    consumer.take()
    if closes:
        assert consumer.fetch(epoch=-1).error_code == ErrorCode.NONE
    else:
        consumer.client.reset()
    taken = other.take()
    assert (taken[0][0], taken[-1][1]) == (0, COUNT - 1)
    # Not because its lock ended.
    assert metric(broker, "millstream_queue_deliveries_total", group=consumer.group) == 2 * COUNT
    assert metric(broker, "millstream_queue_locks_ended_total", group=consumer.group) == 0


def test_heartbeats_that_are_refused(broker: NodeProcess) -> None:
    def beat(**fields: Any) -> int:
        with RawClient(broker.bootstrap) as client:
            client.call("find_coordinator", 4, key_type=0, coordinator_keys=["g", "unknown"])
            given = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rack_id": None}
            reply = client.call(
                "share_group_heartbeat", 1, **{**given, "subscribed_topic_names": None, **fields}
            )
            return int(reply.error_code)

    assert beat() == ErrorCode.INVALID_REQUEST
    assert beat(group_id="", subscribed_topic_names=["t"]) == ErrorCode.INVALID_REQUEST
    assert beat(member_id="x" * 37, subscribed_topic_names=["t"]) == ErrorCode.INVALID_REQUEST
    assert beat(group_id="unknown", member_epoch=5) == ErrorCode.GROUP_ID_NOT_FOUND
