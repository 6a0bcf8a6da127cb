"""A stream of /consume as existing clients read it: line by line."""

import contextlib
import json
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx


class Events:
    """`with Events(client, topic="t", group="g") as events: events.next()`; each is the JSON of its line `data`."""

    def __init__(self, client: httpx.Client, headers: dict[str, str] | None = None, **query: object) -> None:
        params = {name: str(value) for name, value in query.items()}
        self._stream = client.stream("GET", "/consume", params=params, headers=headers)
        self.lines: Iterator[str] = iter(())
        self.answer: httpx.Response

    def __enter__(self) -> Self:
        self.answer = self._stream.__enter__()
        assert self.answer.status_code == 200
        assert self.answer.headers["content-type"] == "text/event-stream"
        self.lines = self.answer.iter_lines()
        assert next(self.lines) == ": connected"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.__exit__(kind, error, trace)

    def cut(self) -> None:
        """From any thread: the connection is gone, as if its client had been killed."""
        with contextlib.suppress(OSError):
            self.answer.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def next(self) -> dict[str, Any]:
        for line in self.lines:
            if line.startswith("data: "):
                found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                return found
        raise AssertionError("the stream has ended")

    def take(self, count: int) -> list[dict[str, Any]]:
        return [self.next() for _ in range(count)]
