"""The API as a server of its own: `serve_api` returns after SIGTERM or SIGINT, with open requests answered."""

import asyncio
import signal
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from millstream.http.server import HttpServer
from millstream.pipeline.api.app import api_routes
from millstream.pipeline.stores.base import StoreReader

_GRACE_S = 5.0

Ready = Callable[[str, int], None]


def serve_api(
    store: StoreReader,
    host: str,
    port: int,
    *,
    status_path: Path | None = None,
    console_dir: Path | None = None,
    token: str | None = None,
    allowed_hosts: Collection[str] = (),
    on_ready: Ready | None = None,
) -> None:
    """Serve until a signal comes; port 0 takes a free one, `on_ready` is told which. Raises OSError when it is taken.

    The store stays open: it belongs to the caller.
    """
    routes = api_routes(store, status_path, console_dir, token)
    asyncio.run(_serve(HttpServer(host, port, routes, allowed_hosts=allowed_hosts), on_ready))


async def _serve(server: HttpServer, on_ready: Ready | None) -> None:
    stop, stop_now = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        """A second signal does not wait for open requests."""
        (stop_now if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for wanted in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(wanted, signalled)
    address = await server.start()
    if on_ready is not None:
        on_ready(*address)
    await stop.wait()
    stopping = [asyncio.ensure_future(server.stop(_GRACE_S)), asyncio.ensure_future(stop_now.wait())]
    await asyncio.wait(stopping, return_when=asyncio.FIRST_COMPLETED)
    await server.stop(0)
    for each in stopping:
        each.cancel()
