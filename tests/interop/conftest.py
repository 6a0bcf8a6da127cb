"""The clients of the interop tests, bound to the shared node."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from support.clients.kinds import Clients
from support.node import NodeProcess
from support.topics import admin_for, create_topic


@pytest.fixture(scope="session")
def clients(broker: NodeProcess) -> Iterator[Clients]:
    with Clients(broker.bootstrap) as made:
        yield made


@pytest.fixture(scope="session")
def admin(broker: NodeProcess) -> AdminClient:
    return admin_for(broker.bootstrap)


@pytest.fixture
def topic(new_topic: Callable[[], str], admin: AdminClient) -> str:
    """A topic of one partition, nothing set."""
    return create_topic(admin, new_topic())


@pytest.fixture
def topic_with(new_topic: Callable[[], str], admin: AdminClient) -> Callable[..., str]:
    """Creates topics: `topic_with(partitions=3, retention_ms=1000)`."""

    def create(partitions: int = 1, **configs: object) -> str:
        by_name = {name.replace("_", "."): value for name, value in configs.items()}
        return create_topic(admin, new_topic(), partitions, by_name)

    return create
