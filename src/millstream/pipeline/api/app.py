"""The application: routes, and threads for queries so that a slow one stops nobody."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.pipeline.api.access import BearerToken
from millstream.pipeline.api.answers import Json, json_response, rfc3339
from millstream.pipeline.api.calls import CALLS, Call
from millstream.pipeline.api.failures import HANDLERS
from millstream.pipeline.api.openapi import openapi_document
from millstream.pipeline.api.pages import page_routes
from millstream.pipeline.api.parameters import Parameters
from millstream.pipeline.api.problems import Problem, bad_request
from millstream.pipeline.api.status import read_status
from millstream.pipeline.stores.base import StoreReader

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUERY_THREADS = 16
MAX_WAITING = 256
"""Requests beyond this are turned away at once instead of waiting for ever."""

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
    ),
)

Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(
    store: StoreReader,
    status_path: Path | None = None,
    console_dir: Path | None = None,
    token: str | None = None,
) -> "ASGIApp":
    """The API over `store`; `status_path` is what the job writes, `console_dir` the built console, if there is one.

    With a `token` only those get data who send it.
    """
    threads = _Threads()
    routes = [Route(call.path, _endpoint(call, store, threads), methods=["GET"]) for call in CALLS]
    routes += [
        Route("/api/v1/pipeline", _pipeline(status_path), methods=["GET"]),
        Route("/health", _health, methods=["GET"]),
        Route("/openapi.json", _fixed_json(openapi_document(has_token=token is not None)), methods=["GET"]),
        *page_routes(console_dir),
    ]
    app: ASGIApp = Starlette(routes=routes, exception_handlers=HANDLERS)
    return _WithHeaders(BearerToken(app, token) if token is not None else app)


class _Threads:
    """Where queries run: a few at a time, a bounded number waiting."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None
        self._inside = 0

    async def run(self, query: Callable[[], Json]) -> Json:
        if self._limiter is None:  # it belongs to the loop, which runs only now
            self._limiter = anyio.CapacityLimiter(QUERY_THREADS)
        if self._inside >= MAX_WAITING:
            raise Problem(503, "too many requests at once; try again in a moment")
        self._inside += 1
        try:
            return await anyio.to_thread.run_sync(query, limiter=self._limiter, abandon_on_cancel=True)
        finally:
            self._inside -= 1


def _endpoint(call: Call, store: StoreReader, threads: _Threads) -> Endpoint:
    known = tuple(parameter.name for parameter in call.parameters)

    async def answer(request: Request) -> Response:
        given = Parameters(request.scope["query_string"], known)
        path = {name: _printable(value) for name, value in request.path_params.items()}
        return json_response(await threads.run(lambda: call.answer(store, given, path)))

    return answer


def _printable(value: str) -> str:
    if not value.isprintable():
        raise bad_request("the path contains characters that cannot be printed")
    return value


def _pipeline(status_path: Path | None) -> Endpoint:
    async def answer(request: Request) -> Response:
        Parameters(request.scope["query_string"], ())
        return json_response(read_status(status_path))

    return answer


async def _health(request: Request) -> Response:
    Parameters(request.scope["query_string"], ())
    return json_response({"status": "ok", "timestamp": rfc3339(datetime.now(UTC))})


def _fixed_json(content: Json) -> Endpoint:
    async def answer(request: Request) -> Response:
        del request
        return json_response(content)

    return answer


class _WithHeaders:
    """Adds headers that tell a browser to load nothing from elsewhere and to believe the content types."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        async def send_with_headers(message: "Message") -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)
