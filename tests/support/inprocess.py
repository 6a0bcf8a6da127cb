"""A node inside the test's own process, on a disk that fails on command."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from millstream.broker.node import Node
from millstream.config.settings import Settings
from millstream.runtime.clock import Clock, SystemClock
from millstream.runtime.disk import Disk


class InProcessNode:
    def __init__(self, disk: Disk, settings: Settings, clock: Clock | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.broker = Node(settings, disk, clock or SystemClock(), self.loop)
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)
        self._started = threading.Event()
        self._failure: BaseException | None = None

    @property
    def listen(self) -> str:
        host, port = self.broker.listen
        return f"{host}:{port}"

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(90)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.broker.stop(), self.loop).result(90)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(90)
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self.broker.start())
        except BaseException as error:
            self._failure = error
        self._started.set()
        if self._failure is None:
            self.loop.run_forever()
            self.loop.run_until_complete(_settle())


async def _settle() -> None:
    """What had begun when the loop was stopped: a connection that just came, or was about to close, would stay open."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    # As many turns as it takes to close a connection that was accepted in the last one.
    for _ in range(5):
        await asyncio.sleep(0)


@contextmanager
def node_on(
    disk: Disk,
    *,
    data_dir: str = "/data",
    clock: Clock | None = None,
    kafka: Mapping[str, str] | None = None,
    **storage_settings: int,
) -> Iterator[InProcessNode]:
    settings = Settings(kafka=kafka or {})
    broker = replace(settings.broker, host="127.0.0.1", port=0, data_dir=data_dir)
    storage = replace(settings.storage, cleaner_enabled=False, **storage_settings)
    node = InProcessNode(disk, replace(settings, broker=broker, storage=storage), clock)
    node.start()
    try:
        yield node
    finally:
        node.stop()
