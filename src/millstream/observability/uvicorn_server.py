"""uvicorn as a guest on the node's loop: the node keeps its signals, its logging and its way of stopping."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn


class NodeServer(uvicorn.Server):
    """`await serve(sockets=[...])` until `should_exit`; `listening` is set once that began or failed."""

    def __init__(self, app: Any, *, max_connections: int, grace_seconds: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http="httptools",
                ws="none",
                interface="asgi3",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=max_connections,
                timeout_graceful_shutdown=grace_seconds,
            )
        )
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
