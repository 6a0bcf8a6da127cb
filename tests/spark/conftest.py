"""The shared Spark session, the shared node's admin client, and topics with something in them."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from support.node import NodeProcess
from support.spark import pytest_runtest_protocol, spark
from support.topics import admin_for, create_topic

__all__ = ["pytest_runtest_protocol", "spark"]


@pytest.fixture(scope="session")
def admin(broker: NodeProcess) -> AdminClient:
    return admin_for(broker.bootstrap)


@pytest.fixture
def topic_with(admin: AdminClient, new_topic: Callable[[], str]) -> Callable[..., str]:
    """Creates topics: `topic_with(partitions=3)`."""
    return lambda partitions=1: create_topic(admin, new_topic(), partitions)


@pytest.fixture
def fill(broker: NodeProcess) -> Callable[..., None]:
    """Writes numbered messages to a partition: `fill(topic, range(10), partition=0)`."""

    def write(topic: str, numbers: range, partition: int = 0, **message: Any) -> None:
        # A new one each time: it knows the partitions as they are now.
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in numbers:
            producer.produce(topic, b"%d" % number, b"k%d" % (number % 7), partition, **message)
        assert producer.flush(90) == 0

    return write
