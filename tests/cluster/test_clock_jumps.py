"""The clock of one node of three jumps: sessions, elections and retention go by time that does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.acked_writes import AckedWriter, judge, read_numbers
from support.cluster import ClusterProcesses, cluster_of
from support.faulty_node import FaultyNode, node_of

SETTINGS = {
    "cluster.session_timeout": "10s",
    "replication.placement": "balanced",
    "storage.retention_check_interval": "100ms",
    "storage.segment_size": "1KB",
}
PARTITIONS = 3
MINUTE_MS = 60_000
# More than records are kept, and idempotent producers remembered.
MONTH_MS = 30 * 24 * 60 * MINUTE_MS


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS, kind=FaultyNode) as cluster:
        cluster.start()
        cluster.create_topic("t", PARTITIONS, min_insync_replicas="2")
        yield cluster


def test_jumps_lose_nothing(cluster: ClusterProcesses) -> None:
    """On the controller, which also leads a partition. A broker refuses messages from an hour ahead of its clock."""
    controller = cluster.controller()
    with AckedWriter(cluster.bootstrap, "t", PARTITIONS) as writer:
        writer.wait_for(100)
        for jump_ms in (MONTH_MS, 0, -50 * MINUTE_MS, 0, 5_000, -5_000):
            node_of(cluster, controller).trouble(clock_offset_ms=jump_ms)
            writer.wait_for(100)
            # Now retention looks at what was written by another clock.
            cluster.wait_in_sync("t")
    judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
    assert not writer.errors
    for node in cluster.nodes.values():
        assert not node.log_entries("segments deleted")
