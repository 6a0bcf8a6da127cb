"""docs/OPERATIONS.md names every metric there is, and none that is not."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from millstream.broker.coordinators.mqtt_sessions import MqttSessions
from millstream.broker.handlers.fetch_sessions import FetchSessions
from millstream.broker.routing.relays import ProxyMetrics
from millstream.broker.server.limit_metrics import watch_limits
from millstream.broker.shares.samples import QueueSamples
from millstream.coordinator.mqtt_sessions.settings import SessionSettings
from millstream.gateway.metrics import GatewayMetrics
from millstream.http.server import HttpServer
from millstream.mqtt.door import MqttDoor
from millstream.mqtt.statistics import Statistics, watch
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.group_metrics import GroupSamples, watch_bounds, watch_groups
from millstream.runtime.clock import SystemClock

PAGE = Path(__file__).parents[3] / "docs" / "OPERATIONS.md"


class Nothing:
    groups = members = offsets = offset_bytes = regexes = bytes = 0
    refusals: ClassVar[dict[str, int]] = {}

    def partition_samples(self) -> list[object]:
        return []

    def purgatory_sizes(self) -> dict[str, int]:
        return {}

    def disk_free_bytes(self) -> int:
        return 0

    def machines(self) -> list[object]:
        return []

    def samples(self, max_groups: int, max_offsets: int) -> GroupSamples:
        return GroupSamples([], [], 0)


class NoQueues:
    resting = ()

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def broker_with() -> Any:
    """Of a node only what these metrics are read from."""
    return SimpleNamespace(
        producer_bounds=SimpleNamespace(evicted=0, refused=0),
        fetch_sessions=FetchSessions(),
        partitions=(),
        server=SimpleNamespace(addresses=0, in_flight_bytes=0, frames=SimpleNamespace(waiting=0)),
        long_work=SimpleNamespace(waiting=0, turns=0),
    )


def mqtt_values() -> dict[str, int]:
    """Of a door what it counts."""
    door: Any = SimpleNamespace(
        shared=SimpleNamespace(
            statistics=Statistics(),
            subscribers=SimpleNamespace(index=SimpleNamespace(count=0), delivered=0),
            retained=SimpleNamespace(count=0, size_bytes=0),
        ),
        _clients=(),
    )
    return MqttDoor.values(door)


def test_the_page_names_all_metrics() -> None:
    metrics = BrokerMetrics.create()
    metrics.watch(Nothing())  # type: ignore[arg-type]
    watch_groups(metrics.registry, Nothing())
    watch_bounds(metrics.registry, Nothing())
    node = broker_with()
    watch_limits(
        metrics.registry,
        node.server,
        node.partitions,
        node.producer_bounds,
        node.fetch_sessions,
        node.long_work,
    )
    no_queues: Any = NoQueues()
    QueueSamples(no_queues, SystemClock()).watch(metrics.registry, lambda: (0, 0))
    hosted: Any = Nothing()
    unused: Any = None
    MqttSessions(lambda: hosted, unused, unused, unused, unused, SessionSettings(), metrics.registry)
    watch(metrics.registry, mqtt_values)
    HttpServer("127.0.0.1", 0, {}).watch(metrics.registry)
    GatewayMetrics.create(metrics.registry)
    ProxyMetrics(metrics.registry, int)
    known = {family.name for families in metrics.registry.snapshot() for family in families}
    table = PAGE.read_text().split("## Metrics")[1]
    assert set(re.findall(r"`((?:millstream|proxy)_\w+)`", table)) == known
