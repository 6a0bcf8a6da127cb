"""The application: routes, errors as JSON, and threads for queries so that a slow one stops nobody."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.observability.logs import get_logger
from millstream.pipeline.api.answers import Json, rfc3339
from millstream.pipeline.api.calls import CALLS, Call
from millstream.pipeline.api.openapi import openapi_document
from millstream.pipeline.api.pages import page_routes
from millstream.pipeline.api.parameters import Parameters
from millstream.pipeline.api.problems import Problem, bad_request
from millstream.pipeline.api.status import read_status
from millstream.pipeline.stores.base import StoreReader
from millstream.pipeline.stores.errors import InvalidCursor, StoreError

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

_log = get_logger("millstream.pipeline.api")

Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(
    store: StoreReader, status_path: Path | None = None, console_dir: Path | None = None
) -> "ASGIApp":
    """The API over `store`; `status_path` is what the job writes, `console_dir` the built console, if there is one."""
    threads = _Threads()
    routes = [Route(call.path, _endpoint(call, store, threads), methods=["GET"]) for call in CALLS]
    routes += [
        Route("/api/v1/pipeline", _pipeline(status_path), methods=["GET"]),
        Route("/health", _health, methods=["GET"]),
        Route("/openapi.json", _fixed_json(openapi_document()), methods=["GET"]),
        *page_routes(console_dir),
    ]
    handlers: Any = {
        HTTPException: _http_problem,
        Problem: _problem,
        StoreError: _store_problem,
        Exception: _failure,
    }
    return _WithHeaders(Starlette(routes=routes, exception_handlers=handlers))


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


def json_response(content: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


async def _problem(request: Request, problem: Problem) -> Response:
    del request
    headers = {"Retry-After": "1"} if problem.status == 503 else None
    return json_response({"error": str(problem)}, problem.status, headers)


async def _store_problem(request: Request, error: StoreError) -> Response:
    if isinstance(error, InvalidCursor):
        return json_response({"error": str(error)}, 400)
    _log.warning("api.store_unavailable", path=request.url.path, error=str(error))
    return json_response({"error": str(error)}, 503, {"Retry-After": "5"})


async def _http_problem(request: Request, error: HTTPException) -> Response:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers["Allow"] = "GET, HEAD, OPTIONS"
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
        return json_response(
            {"error": f"{request.method} is not possible here, only {allowed}"}, 405, headers
        )
    if error.status_code == 404:
        return json_response({"error": f"there is nothing at {request.url.path}; see /docs"}, 404)
    return json_response({"error": error.detail}, error.status_code, headers)


async def _failure(request: Request, error: Exception) -> Response:
    _log.error("api.failed", path=request.url.path, error=f"{type(error).__name__}: {error}")
    return json_response({"error": "the server made a mistake; its log says more"}, 500)


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
