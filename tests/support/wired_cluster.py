"""Nodes with a wire between each two of them, which a test cuts; their clients reach all of them all the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.testing.chaos.processes import ChaosCluster
from millstream.testing.chaos.wires import NoNamespaces, Wires

NODES = (1, 2, 3)


@contextmanager
def wired_cluster(directory: Path, *, routing: str = "direct") -> Iterator[ChaosCluster]:
    """Three nodes that run; the test is skipped where there are no network namespaces."""
    wires = Wires(NODES)
    try:
        wires.open()
    except NoNamespaces as reason:
        pytest.skip(str(reason))
    cluster = ChaosCluster(directory, len(NODES), wires, routing=routing)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        wires.close()


@contextmanager
def isolated(cluster: ChaosCluster, node: int) -> Iterator[None]:
    """No packet between the node and the others."""
    wires = cluster.wires
    assert wires is not None
    pairs = [pair for other in NODES if other != node for pair in ((node, other), (other, node))]
    for pair in pairs:
        wires.cut(*pair)
    try:
        yield
    finally:
        # Also when the test has failed: clients that are to end would wait for the others for minutes.
        for pair in pairs:
            wires.heal(*pair)
