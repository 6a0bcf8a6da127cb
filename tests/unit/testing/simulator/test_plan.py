"""What seeds draw."""

from random import Random

import pytest

from millstream.config.errors import ConfigError
from millstream.testing.simulator.cluster import SimulatedCluster, simulated_settings
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.plan import draw_plan


def test_every_draw_is_one_that_a_node_would_start_with() -> None:
    drawn = {tuple(draw_plan(seed).settings.items()): seed for seed in range(300)}
    for seed in drawn.values():
        SimulatedCluster(SimulatedLoop(), Random(seed), change=draw_plan(seed).apply)


def test_times_that_a_node_refuses_are_not_simulated() -> None:
    refused = simulated_settings(("n1:9092", "n2:9092", "n3:9092"), snapshot_size=2000, lag_ms=2000)
    with pytest.raises(ConfigError, match="must stay in sync for longer"):
        SimulatedCluster(SimulatedLoop(), Random(1), change=lambda _: refused)
