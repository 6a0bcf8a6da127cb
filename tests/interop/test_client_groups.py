"""Our consumer in groups: who reads what, and what a commit means."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from millstream.client import (
    Consumer,
    ConsumerConfig,
    Message,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    ProducerRecord,
)
from millstream.testing import EmbeddedBroker
from support.reading import read
from support.waiting import wait_for

pytestmark = pytest.mark.millstream(scope="session")

Join = Callable[..., Consumer]


@pytest.fixture
def topic(millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> str:
    """Two partitions with five messages in each."""
    name = new_topic()
    millstream_broker.create_topics({name: 2})
    with Producer(ProducerConfig(bootstrap_servers=millstream_broker.bootstrap_servers)) as producer:
        producer.send_batch(ProducerRecord(name, str(n // 2), partition=n % 2) for n in range(10))
    return name


@pytest.fixture
def join(millstream_broker: EmbeddedBroker, topic: str) -> Iterator[Join]:
    """Members of a group with the topic's name, subscribed to the topic; closed at the end."""
    with ExitStack() as members:

        def member(**settings: object) -> Consumer:
            given: dict[str, object] = {"group_id": f"group-of-{topic}", **settings}
            config = ConsumerConfig(
                bootstrap_servers=millstream_broker.bootstrap_servers,
                auto_offset_reset=OffsetResetPolicy.EARLIEST,
                **given,  # type: ignore[arg-type]
            )
            consumer = members.enter_context(Consumer(config))
            consumer.subscribe([topic])
            return consumer

        yield member


def offsets(messages: list[Message]) -> set[tuple[int, int]]:
    return {(each.partition, each.offset) for each in messages}


ALL = {(partition, offset) for partition in range(2) for offset in range(5)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_single_member_reads_everything(join: Join, topic: str, protocol: str) -> None:
    consumer = join(group_protocol=protocol)

    assert offsets(read(consumer, 10)) == ALL
    assert consumer.assignment() == {(topic, 0), (topic, 1)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_share_the_partitions(join: Join, topic: str, protocol: str) -> None:
    first, second = join(group_protocol=protocol), join(group_protocol=protocol)

    def assignments() -> list[set[tuple[str, int]]]:
        first.poll(0.1)
        second.poll(0.1)
        return [first.assignment(), second.assignment()]

    shared = wait_for(assignments, lambda both: all(len(each) == 1 for each in both), "one partition each")

    assert shared[0] | shared[1] == {(topic, 0), (topic, 1)}


def test_group_continues_where_the_last_member_committed(join: Join) -> None:
    first = join(enable_auto_commit=False)
    messages = read(first, 10)
    first.commit(next(each for each in messages if each.partition == 0 and each.offset == 2))
    first.commit({(messages[0].topic, 1): 4})
    first.close()

    second = join(enable_auto_commit=False)

    assert offsets(read(second, 3)) == {(0, 3), (0, 4), (1, 4)}


def test_loop_of_the_seed_commits_message_by_message(join: Join, topic: str) -> None:
    consumer = join(enable_auto_commit=False)
    processed = []
    while len(processed) < 10:
        for message in consumer.poll():
            processed.append(message["value"])
            consumer.commit({(message["topic"], message["partition"]): message["offset"]})

    # As printed there, it commits the last message's own offset: after a restart that message comes once more.
    assert (consumer.committed(topic, 0), consumer.committed(topic, 1)) == (4, 4)


def test_commit_without_arguments_covers_what_poll_returned(join: Join, topic: str) -> None:
    consumer = join(enable_auto_commit=False)
    read(consumer, 10)

    consumer.commit()

    assert (consumer.committed(topic, 0), consumer.committed(topic, 1)) == (5, 5)


def test_commit_may_be_nested_as_in_the_design(join: Join, topic: str) -> None:
    consumer = join(enable_auto_commit=False)
    read(consumer, 10)

    consumer.commit({topic: {0: 1, 1: 2}})

    assert (consumer.committed(topic, 0), consumer.committed(topic, 1)) == (1, 2)


def test_commit_can_be_left_to_the_background(join: Join, topic: str) -> None:
    consumer = join(enable_auto_commit=False)
    read(consumer, 10)

    consumer.commit(asynchronous=True)

    wait_for(lambda: consumer.committed(topic, 0), lambda offset: offset == 5, "the commit arrives")


def test_commit_before_anything_was_read_does_nothing(join: Join, topic: str) -> None:
    consumer = join(enable_auto_commit=False)

    consumer.commit()

    assert consumer.committed(topic, 0) is None


def test_close_commits_what_was_processed(join: Join, topic: str) -> None:
    first = join()
    read(first, 10)
    first.close()

    second = join()
    assert (second.committed(topic, 0), second.committed(topic, 1)) == (5, 5)


def test_member_that_fails_gives_its_last_messages_to_the_next(
    join: Join, millstream_broker: EmbeddedBroker
) -> None:
    first = join()
    processed = first.poll(30, 2)
    unprocessed = first.poll(30, 3)

    first.__exit__(KeyError, KeyError("processing failed"), None)

    again = read(join(), 10 - len(processed))
    assert offsets(unprocessed) <= offsets(again)


def test_iteration_counts_messages_one_by_one(join: Join) -> None:
    seen: list[Message] = []
    first = join()
    for message in first:
        seen.append(message)
        if len(seen) == 3:
            break
    first.close()

    rest = read(join(), 7)

    assert offsets(seen) | offsets(rest) == ALL
    assert offsets(seen) & offsets(rest) == set()


def test_seek_back_is_what_the_next_member_sees(join: Join, topic: str) -> None:
    first = join()
    read(first, 10)
    first.seek(topic, 0, 3)
    first.close()

    assert offsets(read(join(), 2)) == {(0, 3), (0, 4)}


def test_rewound_messages_are_not_committed(join: Join) -> None:
    first = join()
    messages = read(first, 10)
    first.rewind(messages[7:])
    first.close()

    assert offsets(read(join(), 3)) == offsets(messages[7:])


def test_rebalance_hands_over_exactly_what_was_not_processed(join: Join) -> None:
    first = join(max_poll_records=1, auto_commit_interval_ms=60_000)
    seen = read(first, 4)
    second = join(max_poll_records=1, auto_commit_interval_ms=60_000)
    others: list[Message] = []

    def count() -> int:
        seen.extend(first.poll(0.1))
        others.extend(second.poll(0.1))
        return len(seen) + len(others)

    wait_for(count, lambda number: number >= 10, "everything is read")

    assert offsets(seen) | offsets(others) == ALL
    assert len(seen) + len(others) == 10


def test_listeners_hear_of_partitions_that_come_and_go(millstream_broker: EmbeddedBroker, topic: str) -> None:
    heard: list[tuple[str, list[tuple[str, int]]]] = []
    config = ConsumerConfig(
        bootstrap_servers=millstream_broker.bootstrap_servers, group_id=f"listening-{topic}"
    )
    with Consumer(config) as consumer:
        consumer.subscribe(
            [topic],
            on_assign=lambda places: heard.append(("assigned", sorted(places))),
            on_revoke=lambda places: heard.append(("revoked", sorted(places))),
        )
        wait_for(lambda: consumer.poll(0.1) or heard, bool, "an assignment")

    both = [(topic, 0), (topic, 1)]
    assert heard == [("assigned", both), ("revoked", both)]


def test_paused_partitions_stay_with_the_member(join: Join, topic: str) -> None:
    consumer = join()
    read(consumer, 10)
    consumer.pause([(topic, 0), (topic, 1)])

    assert consumer.poll(0.5) == []
    assert consumer.assignment() == consumer.paused() == {(topic, 0), (topic, 1)}

    consumer.resume([(topic, 0), (topic, 1)])
    assert consumer.paused() == set()


def test_assigned_partition_continues_at_the_groups_offset(
    join: Join, millstream_broker: EmbeddedBroker, topic: str
) -> None:
    member = join(enable_auto_commit=False)
    read(member, 10)
    member.commit({(topic, 0): 4})
    member.close()
    config = ConsumerConfig(
        bootstrap_servers=millstream_broker.bootstrap_servers,
        group_id=f"group-of-{topic}",
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
    )
    with Consumer(config) as consumer:
        consumer.assign([(topic, 0)])
        assert offsets(read(consumer, 1)) == {(0, 4)}


def test_topic_that_is_created_later_is_found(
    millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]
) -> None:
    topic, servers = new_topic(), millstream_broker.bootstrap_servers
    config = ConsumerConfig(
        bootstrap_servers=servers,
        group_id=topic,
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        metadata_max_age_ms=200,
    )
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(0.3) == []
        with Producer(ProducerConfig(bootstrap_servers=servers)) as producer:
            producer.send(topic, "late").result(90)
        assert [each.value for each in read(consumer, 1)] == [b"late"]


def test_unsubscribed_member_reads_no_more(join: Join) -> None:
    consumer = join()
    read(consumer, 10)

    consumer.unsubscribe()

    assert consumer.poll(0.2) == []
    assert consumer.assignment() == set()
