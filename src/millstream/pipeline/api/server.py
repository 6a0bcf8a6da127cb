"""The API as a server of its own: `serve_api` returns after SIGTERM or SIGINT, with open requests answered."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from millstream.pipeline.api.app import create_app
from millstream.pipeline.stores.base import StoreReader

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_GRACE_S = 5
_MAX_CONNECTIONS = 1_000

Ready = Callable[[str, int], None]


def serve_api(
    store: StoreReader,
    host: str,
    port: int,
    *,
    status_path: Path | None = None,
    console_dir: Path | None = None,
    token: str | None = None,
    on_ready: Ready | None = None,
) -> None:
    """Serve until a signal comes; port 0 takes a free one, `on_ready` is told which. Raises OSError when it is taken.

    The store stays open: it belongs to the caller.
    """
    app = create_app(store, status_path, console_dir, token)
    with _listening(host, port) as listener:
        asyncio.run(_serve(app, listener, on_ready))


async def _serve(app: "ASGIApp", listener: socket.socket, on_ready: Ready | None) -> None:
    server = _Server(
        uvicorn.Config(
            app, loop="none", http="httptools", ws="none", interface="asgi3", lifespan="off", log_config=None,
            log_level="warning", access_log=False, server_header=False, proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS, timeout_graceful_shutdown=_GRACE_S,
        ),
        on_ready,
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for wanted in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(wanted, server.stop)
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Ready | None) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._on_ready(host, port)

    def stop(self) -> None:
        """A second signal does not wait for open requests."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's would end the process with the signal after a clean stop.
        yield


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        yield listener
    finally:
        listener.close()
