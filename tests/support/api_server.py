"""The query API over real HTTP: a server in a thread of the test, and a client that hides nothing."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.http.server import HttpServer
from millstream.pipeline.api.server import api_routes
from millstream.pipeline.stores.base import StoreReader


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert set(self.json) == {"error"}
        return str(self.json["error"])


@dataclass(frozen=True, slots=True)
class Api:
    host: str
    port: int

    def get(self, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=90)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, fields, answer.read())
        finally:
            connection.close()


@contextmanager
def running_api(
    store: StoreReader,
    status_path: Path | None = None,
    console_dir: Path | None = None,
    token: str | None = None,
) -> Iterator[Api]:
    ready: Future[tuple[str, int]] = Future()
    stop = threading.Event()

    async def serve() -> None:
        server = HttpServer("127.0.0.1", 0, api_routes(store, status_path, console_dir, token))
        ready.set_result(await server.start())
        await asyncio.to_thread(stop.wait)
        await server.stop(1)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield Api(*ready.result(90))
    finally:
        stop.set()
        thread.join(90)
        assert not thread.is_alive()
