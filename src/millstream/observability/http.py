"""The node's HTTP server, on the node's own event loop: uvicorn under a plain ASGI application.

Routes are `"GET /health"` to an async handler. Larger applications, such as the gateway, are mounted under a
path prefix and speak ASGI themselves.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from millstream.observability.logs import get_logger

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_GRACE_SECONDS = 2
_MAX_CONNECTIONS = 1000

_log = get_logger("millstream.http")


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]


class Response(msgspec.Struct, frozen=True):
    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Serves `routes` and `mounts` on `host:port`; port 0 takes a free one."""

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Handler],
        mounts: Mapping[str, AsgiApp] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._app = _Application(routes, mounts or {})
        self._server: Any = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and return the address listened on. Raises OSError when it cannot be had."""
        listener = await _listen(self._host, self._port)
        from millstream.observability.uvicorn_server import NodeServer

        self._server = NodeServer(self._app, max_connections=_MAX_CONNECTIONS, grace_seconds=_GRACE_SECONDS)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")
        await self._server.listening.wait()
        if not self._server.started:
            await self._task
        host, port = listener.getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        """Close the listener, let requests under way finish for a moment, close the rest."""
        if self._task is not None:
            self._server.should_exit = True
            await self._task
            self._task = None


class _Application:
    def __init__(self, routes: Mapping[str, Handler], mounts: Mapping[str, AsgiApp]) -> None:
        self._handlers: dict[str, dict[str, Handler]] = {}
        for route, handler in routes.items():
            method, _, path = route.partition(" ")
            self._handlers.setdefault(path, {})[method] = handler
        self._mounts = sorted(mounts.items(), key=lambda mount: len(mount[0]), reverse=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        for prefix, app in self._mounts:
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                await app(scope, receive, send)
                return
        response = await self._answer(scope)
        await _send(response, send, body=scope["method"] != "HEAD")

    async def _answer(self, scope: Scope) -> Response:
        request = Request(scope["method"], scope["path"], scope["query_string"], tuple(scope["headers"]))
        methods = self._handlers.get(request.path)
        if methods is None:
            return problem(
                404, f"there is nothing at {request.path}; try {', '.join(sorted(self._handlers))}"
            )
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            refusal = f"{request.path} does not take {request.method}; use {allowed}"
            return problem(405, refusal, {"allow": allowed})
        try:
            return await handler(request)
        except Exception:  # noqa: BLE001 - whatever a handler raises, the client gets an answer and the log the reason
            _log.exception("request failed", method=request.method, path=request.path)
            return problem(500, "the request failed inside the node; its log has the reason")


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    import orjson

    return Response(orjson.dumps(value), status, headers=headers or {})


def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error answer: `{"error": message}`."""
    return json_response({"error": message}, status, headers)


async def _send(response: Response, send: Send, *, body: bool) -> None:
    headers = {
        "content-type": response.content_type,
        "content-length": str(len(response.body)),
        "cache-control": "no-store",
        **response.headers,
    }
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": encoded})
    await send({"type": "http.response.body", "body": response.body if body else b""})


async def _listen(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        advice = f"cannot listen for HTTP on {host}:{port}: {reason}; choose another address with --http"
        raise OSError(error.errno, advice) from None
    return listener
