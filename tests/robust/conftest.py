"""Connections of `RawClient` to the shared node, closed at the end of the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support.node import NodeProcess
from support.raw_client import RawClient, create_topic


@pytest.fixture
def connect(broker: NodeProcess) -> Iterator[Callable[[], RawClient]]:
    with ExitStack() as clients:
        yield lambda: clients.enter_context(RawClient(broker.listen))


@pytest.fixture
def client(connect: Callable[[], RawClient]) -> RawClient:
    return connect()


@pytest.fixture
def topic(client: RawClient, new_topic: Callable[[], str]) -> str:
    """A topic of one partition."""
    return create_topic(client, new_topic())
