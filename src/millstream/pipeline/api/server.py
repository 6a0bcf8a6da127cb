"""The API's routes, threads for queries so that a slow one holds up no other, and the API as a server of its own."""

import asyncio
import signal
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import msgspec

from millstream.http.access import has_token
from millstream.http.messages import HTML, Handler, Problem, Request, Response, json_response
from millstream.http.pages import app_route, docs_routes
from millstream.http.server import HttpServer
from millstream.observability.logs import get_logger
from millstream.pipeline.api.calls import CALLS, Call, Health, Json, Sources, bad_request, openapi_document
from millstream.pipeline.stores.base import InvalidCursor, StoreError, StoreReader

QUERY_THREADS = 16
MAX_WAITING = 256
"""Requests beyond this number are refused at once instead of waiting for ever."""
_GRACE_S = 5.0

_log = get_logger("millstream.pipeline.api")

Ready = Callable[[str, int], None]


def serve_api(
    store: StoreReader,
    host: str,
    port: int,
    *,
    status_path: Path | None = None,
    console_dir: Path | None = None,
    token: str | None = None,
    allowed_hosts: Collection[str] = (),
    on_ready: Ready | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, and return with open requests answered.

    Port 0 picks a free port; `on_ready` is called with the address. Raises OSError when the port is taken. The store
    stays open: it belongs to the caller.
    """
    routes = api_routes(store, status_path, console_dir, token)
    asyncio.run(_serve(HttpServer(host, port, routes, allowed_hosts=allowed_hosts), on_ready))


async def _serve(server: HttpServer, on_ready: Ready | None) -> None:
    stop, stop_now = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        """The first signal stops after open requests; a second one stops at once."""
        (stop_now if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for wanted in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(wanted, signalled)
    address = await server.start()
    if on_ready is not None:
        on_ready(*address)
    await stop.wait()
    stopping = [asyncio.ensure_future(server.stop(_GRACE_S)), asyncio.ensure_future(stop_now.wait())]
    await asyncio.wait(stopping, return_when=asyncio.FIRST_COMPLETED)
    await server.stop(0)
    for each in stopping:
        each.cancel()


def api_routes(
    store: StoreReader,
    status_path: Path | None = None,
    console_dir: Path | None = None,
    token: str | None = None,
) -> dict[str, Handler]:
    """The API over `store`; `status_path` is the job's status file, `console_dir` the built console, if there is one.

    With a `token`, only requests that carry it get data. The static pages and /health, which load balancers ask for,
    need no token.
    """
    threads, sources = _Threads(), Sources(store, status_path)
    document = json_response(openapi_document(has_token=token is not None))
    routes = {f"GET {call.path}": _guarded(call, sources, threads, token) for call in CALLS}
    routes["GET /api/{path...}"] = _guarded(None, sources, threads, token)
    routes |= {"GET /health": _health, "GET /openapi.json": lambda _request: document, **docs_routes()}
    if console_dir is None:
        welcome = files(__package__).joinpath("welcome.html").read_bytes()
        routes["GET /"] = lambda _request: Response(welcome, content_type=HTML)
    else:
        routes["GET /{path...}"] = app_route(console_dir)
    return routes


class _Threads:
    """Runs queries: a few at a time, with a bounded number waiting."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(QUERY_THREADS, "query")
        self._inside = 0

    async def run(self, query: Callable[[], bytes]) -> bytes:
        if self._inside >= MAX_WAITING:
            raise Problem(503, "too many requests at once; try again in a moment", {"retry-after": "1"})
        self._inside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, query)
        finally:
            self._inside -= 1


def _guarded(call: Call | None, sources: Sources, threads: _Threads, token: str | None) -> Handler:
    async def answer(request: Request) -> Response:
        if token is not None and not has_token(request, token):
            error = "this API needs a token; send it in the header Authorization: Bearer TOKEN"
            raise Problem(401, error, {"www-authenticate": "Bearer"})
        if call is None:
            raise Problem(404, f"there is nothing at {request.path}; see /docs")
        values: Json = call.values(request.query, request.params)
        try:
            return Response(
                await threads.run(lambda: msgspec.json.encode(call.answer(sources, call, values)))
            )
        except InvalidCursor as error:
            raise Problem(400, str(error)) from error
        except StoreError as error:
            _log.warning("store unavailable", path=request.path, error=str(error))
            raise Problem(503, str(error), {"retry-after": "5"}) from error

    return answer


def _health(request: Request) -> Response:
    if request.query:
        raise bad_request("this call has no parameters")
    return Response(msgspec.json.encode(Health("ok", datetime.now(UTC))))
