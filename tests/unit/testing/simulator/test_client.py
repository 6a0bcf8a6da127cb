"""What a simulated client knows of leaders."""

import asyncio
from random import Random

import pytest

from millstream.testing.simulator.client import SimulatedClient
from millstream.testing.simulator.loop import SimulatedLoop


def test_a_leader_that_is_no_broker_any_more_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for unknown for ever: the partition had no leader when the brokers were last told."""
    client = SimulatedClient("c", SimulatedLoop(), Random(1), (("n1", 1),))
    client._leaders, client._brokers = {("t", 0): 3}, {1: ("n1", 1)}

    async def look(_topic: str, _seconds: float) -> None:
        client._leaders["t", 0] = 1

    monkeypatch.setattr(client, "_look", look)
    assert asyncio.run(client.leader_of("t", 0)) == ("n1", 1)
