"""How many instructions of Python a request takes on a node, counted in the simulator: the same number in every run.

Time on a shared machine varies by half; this does not vary at all, so a path that grew by a tenth shows. What C code
does (checksums, system calls, msgspec) is not counted: the broker's CPU for a gigabyte, beside it, has that.
"""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import millstream
from millstream.testing.history import History
from millstream.testing.simulator.admin import SimulatedAdmin
from millstream.testing.simulator.client import SimulatedClient
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.consumer import SimulatedConsumer
from millstream.testing.simulator.loop import CURRENT, Process, SimulatedLoop
from millstream.testing.simulator.producer import SimulatedProducer

_SOURCE = str(Path(millstream.__file__).parent)
_SIMULATOR = f"{_SOURCE}/testing/"
_WARM_UP = 5
_REQUESTS = 40
_RECORDS = 10
_TOPIC = "counted"
_CLIENTS = ("admin", "producer", "consumer")


def count(nodes: int) -> dict[str, float]:
    """Instructions for each produce (acks=all, durable) and each fetch request, on all nodes together."""
    loop = SimulatedLoop()
    counted: dict[str, float] = {}
    try:
        loop.run(_measure(loop, SimulatedCluster(loop, Random(nodes), count=nodes), counted))
    finally:
        loop.close()
    return counted


async def _measure(loop: SimulatedLoop, cluster: SimulatedCluster, counted: dict[str, float]) -> None:
    nodes = len(cluster.nodes)
    cluster.start()

    def client(name: str) -> SimulatedClient:
        return SimulatedClient(name, loop, Random(name), cluster.addresses)

    history = History()
    admin = SimulatedAdmin(client("admin"), [], nodes)
    producer = SimulatedProducer(client("producer"), _TOPIC, 0, history)
    consumer = SimulatedConsumer(client("consumer"), _TOPIC, 0, history)
    minimum = {"min.insync.replicas": str(min(nodes, 2))}
    await _as_client(admin.client, admin.create_surely(_TOPIC, 1, minimum))

    async def produce() -> None:
        if not await producer.send(_RECORDS):
            raise RuntimeError("a produce request was not acknowledged on a cluster without faults")

    async def fetch() -> None:
        consumer.position -= _RECORDS
        if not await consumer.poll():
            raise RuntimeError("a fetch found nothing on a cluster without faults")

    how = "1 node" if nodes == 1 else f"{nodes} nodes"
    counted[f"produce, {how}"] = await _each(loop, producer.client, produce)
    while await _as_client(consumer.client, consumer.poll(0)):
        pass
    counted[f"fetch, {how}"] = await _each(loop, consumer.client, fetch)
    for node in cluster.nodes.values():
        await node.stop()


async def _each(
    loop: SimulatedLoop, client: SimulatedClient, request: Callable[[], Awaitable[None]]
) -> float:
    """Instructions of one request: of many in a row, less what the nodes do in the same time without any."""

    async def repeat(times: int) -> None:
        for _ in range(times):
            await request()

    await _as_client(client, repeat(_WARM_UP))
    before = loop.time()
    with _counting() as busy:
        await _as_client(client, repeat(_REQUESTS))
    seconds = loop.time() - before
    with _counting() as idle:
        await asyncio.sleep(seconds)
    return (busy.total() - idle.total()) / _REQUESTS


async def _as_client(client: SimulatedClient, work: Any) -> Any:
    return await client.loop.create_task(work, name=client.name, context=client.process.context)


def _is_a_node(process: Process | None) -> bool:
    return process is not None and process.machine not in _CLIENTS


@contextmanager
def _counting() -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_SOURCE) or file.startswith(_SIMULATOR) or not _is_a_node(CURRENT.get()):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True

        def step(_frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "opcode":
                counts[file] += 1
            return step

        return step

    # What others have left behind in this process would end in the middle of it, and count.
    gc.collect()
    gc.disable()
    sys.settrace(enter)
    try:
        yield counts
    finally:
        sys.settrace(None)
        gc.enable()
