"""What a caller gets when something goes wrong: a status, and `{"error": ...}` with one sentence."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from millstream.observability.logs import get_logger
from millstream.pipeline.api.answers import json_response
from millstream.pipeline.api.problems import Problem
from millstream.pipeline.stores.errors import InvalidCursor, StoreError

_log = get_logger("millstream.pipeline.api")


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


HANDLERS: Any = {
    HTTPException: _http_problem,
    Problem: _problem,
    StoreError: _store_problem,
    Exception: _failure,
}
