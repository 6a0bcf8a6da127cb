"""The API's routes, and threads for queries so that a slow one stops nobody."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from millstream.http.access import has_token
from millstream.http.messages import HTML, Handler, Problem, Request, Response, json_response
from millstream.http.pages import app_route, docs_routes
from millstream.observability.logs import get_logger
from millstream.pipeline.api.answers import Json, listed
from millstream.pipeline.api.calls import CALLS, TIMES, Call
from millstream.pipeline.api.openapi import openapi_document
from millstream.pipeline.api.parameters import Parameters, check_order
from millstream.pipeline.api.status import read_status
from millstream.pipeline.history import history_between
from millstream.pipeline.moments import rfc3339
from millstream.pipeline.stores.base import StoreReader
from millstream.pipeline.stores.errors import InvalidCursor, StoreError

QUERY_THREADS = 16
MAX_WAITING = 256
"""Requests beyond this are turned away at once instead of waiting for ever."""

_WELCOME = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Millstream telemetry</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}</style>
<h1>Millstream telemetry</h1>
<p>The query API is running. This installation has no web console, because Node or
its packages could not be had when it was built; install again where they can be had.</p>
<ul><li><a href="/docs">Documentation</a>, to try the calls out</li>
<li><a href="/openapi.json">OpenAPI document</a></li>
<li><a href="/api/v1/gpus">The GPUs</a>, <a href="/api/v1/events">their events</a></li></ul></html>
"""

_log = get_logger("millstream.pipeline.api")

Query = Callable[[Request], Awaitable[Json]]


def api_routes(
    store: StoreReader,
    status_path: Path | None = None,
    console_dir: Path | None = None,
    token: str | None = None,
) -> dict[str, Handler]:
    """The API over `store`; `status_path` is what the job writes, `console_dir` the built console, if there is one.

    With a `token` only those get data who send it. The pages are the same for everyone, and a load balancer asks for
    /health without a token.
    """
    threads = _Threads()
    document = json_response(openapi_document(has_token=token is not None))
    data = {f"GET {call.path}": _call(call, store, threads) for call in CALLS}
    data["GET /api/v1/pipeline"] = _pipeline(status_path)
    data["GET /api/v1/pipeline/history"] = _history(
        status_path.with_name("history.jsonl") if status_path is not None else None, threads
    )
    routes = {name: _guarded(query, token) for name, query in data.items()}
    routes["GET /api/{path...}"] = _guarded(_nothing, token)
    routes |= {"GET /health": _health, "GET /openapi.json": lambda _request: document, **docs_routes()}
    if console_dir is None:
        routes["GET /"] = lambda _request: Response(_WELCOME, content_type=HTML)
    else:
        routes["GET /{path...}"] = app_route(console_dir)
    return routes


class _Threads:
    """Where queries run: a few at a time, a bounded number waiting."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(QUERY_THREADS, "query")
        self._inside = 0

    async def run(self, query: Callable[[], Json]) -> Json:
        if self._inside >= MAX_WAITING:
            raise Problem(503, "too many requests at once; try again in a moment", {"retry-after": "1"})
        self._inside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, query)
        finally:
            self._inside -= 1


def _guarded(query: Query, token: str | None) -> Handler:
    async def answer(request: Request) -> Response:
        if token is not None and not has_token(request, token):
            error = "this API needs a token; send it in the header Authorization: Bearer TOKEN"
            raise Problem(401, error, {"www-authenticate": "Bearer"})
        try:
            return json_response(await query(request))
        except InvalidCursor as error:
            raise Problem(400, str(error)) from error
        except StoreError as error:
            _log.warning("store unavailable", path=request.path, error=str(error))
            raise Problem(503, str(error), {"retry-after": "5"}) from error

    return answer


def _call(call: Call, store: StoreReader, threads: _Threads) -> Query:
    known = tuple(parameter.name for parameter in call.parameters)

    async def answer(request: Request) -> Json:
        given = Parameters(request.query, known)
        if not all(value.isprintable() for value in request.params.values()):
            raise Problem(400, "the path contains characters that cannot be printed")
        return await threads.run(lambda: call.answer(store, given, request.params))

    return answer


def _pipeline(status_path: Path | None) -> Query:
    async def answer(request: Request) -> Json:
        Parameters(request.query, ())
        return read_status(status_path)

    return answer


def _history(path: Path | None, threads: "_Threads") -> Query:
    def answer_with(given: Parameters) -> Json:
        start, end = given.time("start_time"), given.time("end_time")
        check_order(start, end)
        return listed("history", history_between(path, start, end))

    async def answer(request: Request) -> Json:
        given = Parameters(request.query, [each.name for each in TIMES])
        return await threads.run(lambda: answer_with(given))

    return answer


async def _nothing(request: Request) -> Json:
    raise Problem(404, f"there is nothing at {request.path}; see /docs")


def _health(request: Request) -> Response:
    Parameters(request.query, ())
    return json_response({"status": "ok", "timestamp": rfc3339(datetime.now(UTC))})
