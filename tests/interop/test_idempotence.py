"""Idempotent producers: every message once and in order, across clean restarts and crashes of the node."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from support.clients.kinds import Clients
from support.clients.message import PATIENCE_S, Message
from support.node import NodeProcess
from support.stored_batches import stored_batches
from support.topics import admin_for, create_topic

MESSAGES = 3000
Tick = Callable[[], None]


class Interruptions:
    """Restarts a node from another thread while a producer is at work, after every so many messages sent."""

    def __init__(self, *restarts: Callable[[], object]) -> None:
        self._restarts = restarts
        self._sent = 0
        self._due = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self.failure: BaseException | None = None

    def sent(self) -> None:
        """Told of each message as the client takes it."""
        self._sent += 1
        if self._sent % (MESSAGES // (len(self._restarts) + 1)) == 0:
            self._due.release()

    def _run(self) -> None:
        try:
            for restart in self._restarts:
                assert self._due.acquire(timeout=PATIENCE_S)
                restart()
        except BaseException as failure:
            self.failure = failure

    def __enter__(self) -> "Interruptions":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self.failure is not None:
            raise self.failure


def produce_by_librdkafka(clients: Clients, topic: str, sent: Tick) -> None:
    outcomes: list[object] = []
    producer = clients.confluent.producer(
        enable_idempotence=True, linger_ms=1, retry_backoff_ms=50, reconnect_backoff_max_ms=100
    )
    for number in range(MESSAGES):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0)
        sent()
        if number % 10 == 0:
            time.sleep(0.001)
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == [None] * MESSAGES


def produce_by_kafka_python(clients: Clients, topic: str, sent: Tick) -> None:
    producer = clients.kafka_python.producer(linger_ms=1, retry_backoff_ms=50, reconnect_backoff_max_ms=100)
    try:
        futures = []
        for number in range(MESSAGES):
            futures.append(producer.send(topic, b"%d" % number, partition=0))
            sent()
            if number % 10 == 0:
                time.sleep(0.001)
        for future in futures:
            future.get(PATIENCE_S)
    finally:
        producer.close(PATIENCE_S)


def produce_by_aiokafka(clients: Clients, topic: str, sent: Tick) -> None:
    async def work() -> None:
        options = {"enable_idempotence": True, "linger_ms": 1, "retry_backoff_ms": 50}
        async with asyncio.timeout(2 * PATIENCE_S), clients.aiokafka.producer(**options) as producer:
            futures = []
            for number in range(MESSAGES):
                futures.append(await producer.send(topic, b"%d" % number, partition=0))
                sent()
                if number % 10 == 0:
                    await asyncio.sleep(0.001)
            await asyncio.gather(*futures)

    asyncio.run(work())


PRODUCE = {
    "confluent": produce_by_librdkafka,
    "kafka-python": produce_by_kafka_python,
    "aiokafka": produce_by_aiokafka,
}


@pytest.mark.parametrize("client", list(PRODUCE))
def test_nothing_is_lost_or_doubled_when_the_node_restarts_and_crashes(
    start_node: Callable[..., NodeProcess], client: str
) -> None:
    node = start_node()
    create_topic(admin_for(node.bootstrap), "topic")
    interruptions = Interruptions(node.crash_and_restart, node.restart)
    with Clients(node.bootstrap) as clients, interruptions:
        PRODUCE[client](clients, "topic", interruptions.sent)
    with Clients(node.bootstrap) as clients:
        stored = clients.confluent.read("topic")
    assert [each.value for each in stored] == [b"%d" % number for number in range(MESSAGES)]
    assert [each.offset for each in stored] == list(range(MESSAGES))
    batches = stored_batches(node.partition_dir("topic"))
    assert {batch.producer_id for batch in batches} != {-1}


def test_a_producer_goes_on_where_it_was_after_a_restart_without_traffic(
    start_node: Callable[..., NodeProcess],
) -> None:
    """The node must know the sequence from its files: there was nothing under way to be sent again."""
    node = start_node()
    create_topic(admin_for(node.bootstrap), "topic", configs={"segment.bytes": 500})
    with Clients(node.bootstrap) as clients:
        producer = clients.confluent.producer(enable_idempotence=True, reconnect_backoff_max_ms=100)
        for turn, restart in enumerate((node.restart, node.crash_and_restart)):
            for number in range(10):
                producer.produce("topic", b"%d %d" % (turn, number))
                assert producer.flush(PATIENCE_S) == 0
            restart()
        producer.produce("topic", b"end")
        assert producer.flush(PATIENCE_S) == 0
    with Clients(node.bootstrap) as clients:
        values = [each.value for each in clients.confluent.read("topic")]
    assert values == [b"%d %d" % (turn, number) for turn in range(2) for number in range(10)] + [b"end"]
    batches = stored_batches(node.partition_dir("topic"))
    assert len({batch.producer_id for batch in batches}) == 1
    assert [batch.base_sequence for batch in batches] == list(range(21))


def test_every_producer_gets_an_id_of_its_own_also_after_restarts(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node()
    for restart in (node.restart, node.crash_and_restart, lambda: None):
        with Clients(node.bootstrap) as clients:
            for _ in range(3):
                clients.kafka_python.write("topic", [Message(b"v")])
        restart()
    batches = stored_batches(node.partition_dir("topic"))
    assert len({batch.producer_id for batch in batches}) == len(batches) == 9
