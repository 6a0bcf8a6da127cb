"""One node with the MQTT door for all tests that need no node of their own."""

from collections.abc import Callable, Iterator

import pytest

from support.mqtt_client import RawMqtt
from support.node import NodeProcess

DOOR = ("--mqtt", "127.0.0.1:0", "--mqtt-ws", "127.0.0.1:0")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"mqtt.rules": "rule/{site}/+ -> ruled key={site} header.level={1}", "mqtt.max_inflight": "5"}
    settings |= {"mqtt.max_queued": "10", "kafka.group.initial.rebalance.delay.ms": "0"}
    node = NodeProcess(tmp_path_factory.mktemp("mqtt"), DOOR, settings=settings).start()
    try:
        yield node
        node.stop()
    finally:
        node.close()


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Callable[..., RawMqtt]]:
    """Clients of the shared node, closed at the end."""
    clients: list[RawMqtt] = []

    def make(version: int = 5) -> RawMqtt:
        clients.append(RawMqtt(node, version))
        return clients[-1]

    yield make
    for each in clients:
        each.close()
