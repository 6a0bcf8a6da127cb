"""A gateway alone: it serves before it has found a broker, and says so."""

import asyncio
import json

from millstream.broker.gateway_process import GatewayProcess
from millstream.config.load import load_settings
from millstream.runtime.clock import SystemClock
from millstream.testing.disk import SimulatedDisk
from support.inprocess import node_on


async def health(address: str) -> tuple[int, dict[str, object]]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ", 2)[1]), json.loads(body)


async def until_healthy(gateway: GatewayProcess) -> None:
    async with asyncio.timeout(60):
        while (await health(gateway.address))[0] != 200:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


def gateway_to(*brokers: str) -> GatewayProcess:
    flags = {"broker.roles": "gateway", "cluster.bootstrap_servers": ",".join(brokers), "http.port": 0}
    settings = load_settings(flags=flags)
    return GatewayProcess(settings, [], SystemClock())


def test_it_is_well_when_a_broker_answers() -> None:
    with node_on(SimulatedDisk(1)) as node:

        async def story() -> None:
            gateway = gateway_to("127.0.0.1:1", node.listen)
            await gateway.start()
            try:
                await until_healthy(gateway)
            finally:
                await gateway.stop()

        asyncio.run(story())


def test_without_a_broker_it_answers_that_there_is_none() -> None:
    async def story() -> None:
        gateway = gateway_to("127.0.0.1:1")
        await gateway.start()
        try:
            status, answer = await health(gateway.address)
            assert (status, answer["status"], answer["reasons"]) == (503, "starting", ["no broker answers"])
        finally:
            await gateway.stop()

    asyncio.run(story())
