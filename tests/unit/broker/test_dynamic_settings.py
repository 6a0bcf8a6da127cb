"""Settings of a broker that take effect while it runs."""

from collections.abc import Iterator

import pytest

from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient

BROKER, SET, DELETE = 4, 0, 1


@pytest.fixture
def node() -> Iterator[InProcessNode]:
    with node_on(SimulatedDisk(), kafka={"log.cleaner.backoff.ms": "700"}) as node:
        yield node


def change(client: RawClient, broker: str, name: str, value: str | None) -> None:
    operation = DELETE if value is None else SET
    config = {"name": name, "config_operation": operation, "value": value}
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": [config]}
    (answer,) = client.call("incremental_alter_configs", 1, resources=[resource]).responses
    assert (answer.error_code, answer.error_message) == (0, None)


def test_connections_beyond_a_new_limit_are_closed(node: InProcessNode) -> None:
    with RawClient(node.listen) as client:
        change(client, "1", "max.connections.per.ip", "1")
        with RawClient(node.listen) as refused:
            assert refused.is_closed_by_broker()
        change(client, "1", "max.connections.per.ip", None)
        change(client, "", "max.connections", "1")
        with RawClient(node.listen) as refused:
            assert refused.is_closed_by_broker()
        change(client, "", "max.connections", "2")
        with RawClient(node.listen) as other:
            assert other.call("api_versions", 0).error_code == 0


def test_a_limit_stays_within_what_the_system_allows(node: InProcessNode) -> None:
    with RawClient(node.listen) as client:
        change(client, "1", "max.connections", str(2**31 - 1))
    assert node.broker.server.max_connections < 2**31 - 1


def test_the_cleaner_waits_as_long_as_was_set_last(node: InProcessNode) -> None:
    cleaner = node.broker.logs.cleaner
    assert cleaner.interval_ms == 700, "as in the file"
    with RawClient(node.listen) as client:
        change(client, "", "log.cleaner.backoff.ms", "900")
        assert cleaner.interval_ms == 900
        change(client, "1", "log.cleaner.backoff.ms", "800")
        assert cleaner.interval_ms == 800
        change(client, "1", "log.cleaner.backoff.ms", None)
        change(client, "", "log.cleaner.backoff.ms", None)
        assert cleaner.interval_ms == 700
