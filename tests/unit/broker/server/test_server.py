"""The listener, where its address is somebody else's after all."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from millstream.broker.server.listener import Listener
from millstream.broker.server.server import Server
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
