"""One node with its gateway for all tests of a file, and clients for it."""

from collections.abc import Iterator

import httpx
import pytest

from millstream.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"telemetry": 3}, settings={"proxy.release_delay": "100ms"}) as broker:
        yield broker


@pytest.fixture
def gateway(node: EmbeddedBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.http_url, timeout=90) as client:
        yield client
