"""docs/OPERATIONS.md names every metric there is, and none that is not."""

import re
from pathlib import Path

from millstream.broker.proxy.relays import ProxyMetrics
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.group_metrics import GroupSamples, watch_groups

PAGE = Path(__file__).parents[3] / "docs" / "OPERATIONS.md"


class Nothing:
    def partition_samples(self) -> list[object]:
        return []

    def purgatory_sizes(self) -> dict[str, int]:
        return {}

    def disk_free_bytes(self) -> int:
        return 0

    def samples(self, max_groups: int, max_offsets: int) -> GroupSamples:
        return GroupSamples([], [], 0)


def test_the_page_names_all_metrics() -> None:
    metrics = BrokerMetrics.create()
    metrics.watch(Nothing())  # type: ignore[arg-type]
    watch_groups(metrics.registry, Nothing())
    ProxyMetrics(metrics.registry, int)
    known = {family.name for families in metrics.registry.snapshot() for family in families}
    table = PAGE.read_text().split("## Metrics")[1]
    assert set(re.findall(r"`(millstream_\w+)`", table)) == known
