"""Which topics take dead letters, and what the broker's settings allow."""

import asyncio
from collections.abc import Iterator

import pytest

from millstream.broker.shares.dead_letter_topics import DeadLetterTopics
from millstream.broker.shares.taken import Wanted
from millstream.client.errors import ClientError
from millstream.client.queue_admin import QueueAdmin
from millstream.cluster.metadata.configs import AlterConfigs, ConfigAlteration, ConfigChange
from millstream.cluster.metadata.records import ConfigResource
from millstream.coordinator.shares.queue_values import Outcome, Settlement
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, produce
from support.waiting import wait_for

TOPIC_NAME = "errors.deadletterqueue.topic.name"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
CREATES = "errors.deadletterqueue.auto.create.topics.enable"


@pytest.fixture
def node() -> Iterator[InProcessNode]:
    with node_on(SimulatedDisk()) as running:
        yield running


def set_for_all_brokers(node: InProcessNode, key: str, value: str) -> None:
    change = ConfigAlteration(ConfigResource.BROKER, "", (ConfigChange(key, value),))

    async def submit() -> None:
        [outcome] = await node.broker.metadata.submit(AlterConfigs((change,)))
        assert outcome.error is None, outcome.error

    asyncio.run_coroutine_threadsafe(submit(), node.loop).result(60)


def partitions_of(node: InProcessNode, topic: str) -> int:
    shares = node.broker.services.shares
    topics = DeadLetterTopics(shares._metadata, shares._defaults)
    return asyncio.run_coroutine_threadsafe(topics.partitions_of(topic), node.loop).result(60)


def refusal(node: InProcessNode, topic: str) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as refused:
        partitions_of(node, topic)
    return ErrorCode(refused.value.code), refused.value.message


def test_a_topic_takes_letters_if_its_name_and_its_settings_say_so(node: InProcessNode) -> None:
    with RawClient(node.listen) as client:
        create_topic(client, "dlq.jobs", 3, errors_deadletterqueue_group_enable="true")
        create_topic(client, "dlq.plain")
        create_topic(client, "orders", errors_deadletterqueue_group_enable="true")
    assert partitions_of(node, "dlq.jobs") == 3
    code, words = refusal(node, "dlq.plain")
    assert code is ErrorCode.INVALID_CONFIG
    assert "set errors.deadletterqueue.group.enable=true" in words
    code, words = refusal(node, "orders")
    assert code is ErrorCode.INVALID_CONFIG
    assert "must begin with 'dlq.'" in words
    code, words = refusal(node, "dlq.none")
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "make the topic dlq.none" in words
    set_for_all_brokers(node, PREFIX, "")
    assert partitions_of(node, "orders") == 1


def test_a_group_may_not_name_a_topic_that_brokers_do_not_allow(node: InProcessNode) -> None:
    with QueueAdmin(node.listen) as admin:
        for name, reason in (
            ("letters", "must begin with 'dlq.'"),
            ("__consumer_offsets", "internal"),
            ("dlq.a b", "dlq.a b"),
        ):
            with pytest.raises(ClientError, match=TOPIC_NAME) as refused:
                admin.alter_group_configs("workers", {TOPIC_NAME: name})
            assert "INVALID_CONFIG" in str(refused.value)
            assert reason in str(refused.value)
        admin.alter_group_configs("workers", {TOPIC_NAME: "dlq.letters"})
        admin.alter_group_configs("workers", {TOPIC_NAME: ""})
        set_for_all_brokers(node, PREFIX, "dead-")
        admin.alter_group_configs("workers", {TOPIC_NAME: "dead-letters"})


def test_the_node_makes_the_topic_with_the_first_letter_where_it_may(node: InProcessNode) -> None:
    set_for_all_brokers(node, CREATES, "true")
    with RawClient(node.listen) as client:
        create_topic(client, "jobs")
        assert produce(client, "jobs", batch_of(b"a", b"b", b"c")).error_code == 0
    with QueueAdmin(node.listen) as admin:
        admin.alter_group_configs("workers", {TOPIC_NAME: "dlq.jobs"})
    assert "dlq.jobs" not in node.broker.metadata.image.topics

    async def reject_all() -> None:
        queue = await node.broker.services.shares.open("workers", "jobs", 0, from_earliest=True)
        queue.acquire("m", Wanted(100, 1 << 20))
        queue.settle("m", [Settlement(0, 2, Outcome.REJECT, reason="no use")])
        await queue.stored()

    asyncio.run_coroutine_threadsafe(reject_all(), node.loop).result(60)

    def written() -> int:
        partition = node.broker.logs.partitions.get("dlq.jobs", 0)
        return 0 if partition is None else partition.high_watermark

    wait_for(written, (3).__eq__, "letters in a topic that the node made")
    made = node.broker.metadata.image.topics["dlq.jobs"]
    assert made.configs["errors.deadletterqueue.group.enable"] == "true"
