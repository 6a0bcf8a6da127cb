"""The listener, where its address is somebody else's after all."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from millstream.broker.server.listener import Listener
from millstream.broker.server.server import EndedConnections, Server
from millstream.config.settings import PerformanceSettings
from millstream.observability.broker_metrics import BrokerMetrics


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_address_that_another_took_since_it_was_bound_is_an_error(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    loop = new_loop()

    def server() -> Server:
        # No connection comes, so there is nothing to dispatch.
        return Server(loop, PerformanceSettings(), BrokerMetrics.create())

    async def run() -> None:
        first, second = server(), server()
        _host, port = await first.bind("127.0.0.1", 0, Listener("PLAINTEXT", frozenset()))
        await second.bind("127.0.0.1", port, Listener("PLAINTEXT", frozenset()))
        await first.start()
        try:
            with pytest.raises(OSError, match="in use"):
                await second.start()
        finally:
            for each in (first, second):
                each.stop_reading()
                await each.stop()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def test_what_one_client_does_again_and_again_is_counted(told: list[tuple[str, dict[str, Any]]]) -> None:
    loop = asyncio.new_event_loop()
    ended = EndedConnections(loop)
    for size in range(250):
        ended.refused(f"10.0.0.1:{size}", f"a request of {size} bytes")
    ended.refused("10.0.0.2:1", "a request of 5 bytes")
    ended.rejected("10.0.0.1:1", "100 connections are open")
    assert len(told) == 100 + 2

    ended.sum_up()
    assert len(told) == 103
    event, fields = told[-1]
    assert event == "connection closed"
    assert (fields["host"], fields["reason"], fields["repeated"]) == ("10.0.0.1", "a request of N bytes", 150)

    ended.refused("10.0.0.1:1", "a request of 5 bytes")
    ended.sum_up()
    assert "repeated" not in told[-1][1]
    loop.close()
