"""Requests and answers, as handlers get and return them."""

import http
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
EVENT_STREAM = "text/event-stream"

_REASONS = {status.value: status.phrase for status in http.HTTPStatus}
_NO_HEADERS: Mapping[str, str] = {}
# Browsers must not load anything from other sites, or show the pages in a frame.
_PAGE_HEADERS = (
    "referrer-policy: no-referrer\r\ncontent-security-policy: default-src 'self'; style-src 'self'"
    " 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'\r\n"
)


class Request(msgspec.Struct):
    """`path` is decoded, `params` are from the route, and names in `headers` are in lower case."""

    method: str
    path: str
    query: bytes
    headers: dict[bytes, bytes]
    params: Mapping[str, str]
    peer: str
    """The address of the client."""
    body: bytes = b""

    def header(self, name: str) -> str:
        """The value of the header, or the empty string."""
        return self.headers.get(name.encode(), b"").decode("latin-1")


class Response(msgspec.Struct, frozen=True):
    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = _NO_HEADERS


class Sink(Protocol):
    """A stream writes here; raises ConnectionError once the client is gone."""

    async def send(self, data: bytes) -> None:
        """Write; waits while the client reads more slowly."""
        ...


class Stream(msgspec.Struct, frozen=True):
    """An answer of unknown length. `run` writes it, and is cancelled when the client leaves or the server stops.

    `heartbeat` is written after `Limits.heartbeat_s` without output; all streams share one timer.
    """

    run: Callable[[Sink], Awaitable[None]]
    content_type: str = EVENT_STREAM
    heartbeat: bytes = b""
    headers: Mapping[str, str] = _NO_HEADERS
    status: int = 200


Answer = Response | Stream
Handler = Callable[[Request], Answer | Awaitable[Answer]]
"""A handler that need not wait returns its answer directly, which saves a task."""


class Problem(Exception):
    """Raised by a handler, answered as `{"error": message}` with `status`."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers

    def response(self) -> Response:
        return json_response({"error": str(self)}, self.status, self.headers)


def json_response(value: object, status: int = 200, headers: Mapping[str, str] = _NO_HEADERS) -> Response:
    import orjson

    return Response(orjson.dumps(value), status, headers=headers)


def head(answer: Answer, date: bytes) -> bytes:
    """The status line and headers, before those that the connection adds."""
    lines = [_start(answer.status, answer.content_type)]
    if answer.headers:
        lines += [_header(name, value) for name, value in answer.headers.items()]
    if "cache-control" not in answer.headers:
        lines.append(b"cache-control: no-store\r\n")
    lines.append(date)
    return b"".join(lines)


_starts: dict[tuple[int, str], bytes] = {}


def _start(status: int, content_type: str) -> bytes:
    found = _starts.get((status, content_type))
    if found is None:
        text = (
            f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\ncontent-type: {content_type}\r\n"
            f"x-content-type-options: nosniff\r\n{_PAGE_HEADERS if content_type == HTML else ''}"
        )
        found = _starts[status, content_type] = text.encode("latin-1")
    return found


def _header(name: str, value: str) -> bytes:
    line = f"{name}: {value}"
    if "\r" in line or "\n" in line:
        raise ValueError(f"the value of the header {name} has a line break")
    return line.encode("latin-1") + b"\r\n"
