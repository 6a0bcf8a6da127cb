"""The process of a node, from its start to SIGTERM, Ctrl-C, or a failure of the node."""

import asyncio
import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream import __version__
from millstream.broker.node import Node
from millstream.broker.peers.founding import CannotJoin
from millstream.broker.wiring import warm_up
from millstream.cluster.metadata.directory import WrongDataDirectory
from millstream.cluster.metadata.machine import UnknownRecords
from millstream.cluster.raft.wal_frames import WalCorrupt
from millstream.config.settings import Settings
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError
from millstream.runtime.clock import Clock, SystemClock
from millstream.runtime.disk import Disk, SystemDisk
from millstream.runtime.process import ignore_endings, keep_freed_memory, told_to_stop
from millstream.storage.store import DataDirectoryInUse

if TYPE_CHECKING:
    from millstream.doors.attached import Attach, AttachedDoor
    from millstream.http.server import HttpServer

log = get_logger("millstream.node")

_WARM_UP_SECONDS = 1.0
# The garbage collector runs after this many new objects.
_NEW_OBJECTS = 10_000
# A node that is not ready by then waits for other nodes or for recovery: its HTTP port opens to say so.
_HTTP_AFTER_SECONDS = 1.0


class CannotStart(Exception):
    """The node could not start; the message gives the reason and advice."""


def run(
    settings: Settings, disk: Disk | None = None, clock: Clock | None = None, attach: Sequence["Attach"] = ()
) -> int:
    """Run a node until SIGTERM or Ctrl-C, on the system's disk and clock; returns the process's exit code.

    `attach` makes the doors, which the node does not know.
    """
    import uvloop

    from millstream.observability import logs

    logs.configure(settings.log.level, settings.log.format)
    for warning in settings.warnings:
        log.warning("setting without effect", reason=warning)
    keep_freed_memory()
    # Before the logs are loaded: the collector would go through all of them again and again.
    gc.set_threshold(_NEW_OBJECTS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, disk or SystemDisk(), clock or SystemClock(), attach))


async def _run(settings: Settings, disk: Disk, clock: Clock, attach: Sequence["Attach"]) -> int:
    loop = asyncio.get_running_loop()
    stop = told_to_stop(loop)
    node = Node(settings, disk, clock, loop)
    http = _Http(node, attach)
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait(
            (starting, stopping), timeout=_HTTP_AFTER_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not starting.done() and not stopping.done():
            await http.start()
        # A node of a cluster waits without a time limit for the others.
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and not starting.done():
            await _call_off(starting)
            await http.stop()
            await node.stop()
            ignore_endings()
            return 0
        await starting
    except (
        DataDirectoryInUse,
        WalCorrupt,
        WrongDataDirectory,
        UnknownRecords,
        CannotJoin,
        KafkaError,
    ) as error:
        raise CannotStart(str(error)) from error
    finally:
        if not starting.done():
            await _call_off(starting)
    try:
        await http.start()
        await http.attach()
        log.info(
            "ready",
            listen=f"{node.listen[0]}:{node.listen[1]}",
            nodes=node.listening.for_nodes.address,
            http=http.address,
            node_id=node.node_id,
            data=node.store.data_dir,
            version=__version__,
        )
        loop.call_later(_WARM_UP_SECONDS, warm_up, node.machine.workers)
        # Objects made so far stay. Collecting them would take a tenth of a busy node's time.
        gc.freeze()
        await asyncio.wait((stopping, node.failure), return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping")
    finally:
        await http.stop()
        await node.stop()
    log.info("stopped")
    ignore_endings()
    return 1 if node.failure.done() else 0


async def _call_off(starting: "asyncio.Future[None]") -> None:
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)


class _Http:
    """The node's HTTP port, if it has one, and its doors; `start` may be called again."""

    def __init__(self, node: Node, attach: Sequence["Attach"]) -> None:
        self.address: str | None = None
        self._node = node
        self._attach = attach
        self._attached: list[AttachedDoor] = []
        self._server: HttpServer | None = None

    async def start(self) -> None:
        if self._server is not None or self._node.settings.http.port is None:
            return
        from millstream.broker.http import NodeHealth, node_http

        node = self._node
        disk, data_dir = node.machine.disk, node.store.data_dir
        health = NodeHealth(
            node.node_id,
            node.machine.clock,
            node.metrics,
            node.partitions,
            node.logs.writability,
            lambda: node.metadata,
            lambda: node.waiting_for,
            lambda: node.replicas.faults,
            lambda: disk.free_bytes(data_dir),
            self._attached,
        )
        self._server = node_http(node.settings, node.metrics.registry, health, node.machine.clock)
        if self._attach:
            self._server.expect_routes("the node is starting")
        host, port = await self._server.start()
        self.address = f"{host}:{port}"

    async def attach(self) -> None:
        """Open the doors; called when the node serves."""
        node = self._node
        for attach in self._attach:
            door = attach(
                node.services.node_doors.doors, node.metrics.registry, node.settings, node.machine.clock
            )
            await door.start()
            self._attached.append(door)
            if self._server is not None:
                self._server.add_routes(door.routes)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
        for door in self._attached:
            await door.stop()
