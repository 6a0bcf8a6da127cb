"""Three nodes for each test; a module that redefines `lag_ms` says when a silent follower leaves the in-sync set."""

from collections.abc import Iterator

import pytest

from support.three_nodes import ThreeNodes


@pytest.fixture
def lag_ms() -> int:
    return 30_000


@pytest.fixture
def three(lag_ms: int) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(lag_ms=lag_ms)
    try:
        yield nodes
    finally:
        nodes.close()
