"""A process that is a node: from its start to SIGTERM, Ctrl-C, or an end that the node brings about itself."""

import asyncio
import signal

from millstream import __version__
from millstream.broker.node import Broker
from millstream.broker.peers.errors import CannotJoin
from millstream.cluster.metadata.directory import WrongDataDirectory
from millstream.cluster.metadata.machine import UnknownRecords
from millstream.cluster.raft.wal_frames import WalCorrupt
from millstream.config.settings import Settings
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError
from millstream.runtime.clock import Clock, SystemClock
from millstream.runtime.disk import Disk, SystemDisk
from millstream.runtime.process import keep_freed_memory
from millstream.storage.store import DataDirectoryInUse

log = get_logger("millstream.node")

_WARM_UP_SECONDS = 1.0
# Also where SIGINT was ignored at the start, as in a shell's background job: who sends it one means it.
_ENDING = (signal.SIGTERM, signal.SIGINT)


class CannotStart(Exception):
    """The node did not come up; the message says why, and what to do."""


def run(settings: Settings, disk: Disk | None = None, clock: Clock | None = None) -> int:
    """Run a node until SIGTERM or Ctrl-C, on the system's disk and clock; returns the process's exit code."""
    import uvloop

    from millstream.observability import logs

    logs.configure(settings.log.level, settings.log.format)
    keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, disk or SystemDisk(), clock or SystemClock()))


async def _run(settings: Settings, disk: Disk, clock: Clock) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _ENDING:
        loop.add_signal_handler(number, stop.set)
    broker = Broker(settings, disk, clock, loop)
    http = None
    starting = asyncio.ensure_future(broker.start())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        # A node of several may wait for others for as long as it takes to start them.
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await broker.stop()
            _ignore_signals(loop)
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
    try:
        http_address = None
        if settings.http.port is not None:
            from millstream.broker.http import node_http

            http = node_http(broker)
            host, port = await http.start()
            http_address = f"{host}:{port}"
        log.info(
            "ready",
            listen=f"{broker.listen[0]}:{broker.listen[1]}",
            http=http_address,
            node_id=broker.node_id,
            data=broker.store.data_dir,
            version=__version__,
        )
        loop.call_later(_WARM_UP_SECONDS, broker.warm_up)
        await asyncio.wait((stopping, broker.failure), return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping")
    finally:
        if http is not None:
            await http.stop()
        await broker.stop()
    log.info("stopped")
    _ignore_signals(loop)
    return 1 if broker.failure.done() else 0


def _ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    """All is done: another wish to stop must not end the rest of the process as a failure."""
    for number in _ENDING:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
