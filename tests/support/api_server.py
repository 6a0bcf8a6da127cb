"""The query API over real HTTP: a server in a thread of the test, and a client that hides nothing."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from millstream.pipeline.api.app import create_app
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
    app = create_app(store, status_path, console_dir, token)
    config = uvicorn.Config(
        app, port=0, host="127.0.0.1", log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    listener = config.bind_socket()
    listener.listen()  # so that the first request waits instead of being refused
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Api(*listener.getsockname()[:2])
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()
