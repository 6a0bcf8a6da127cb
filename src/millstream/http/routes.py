"""Finds the handler of a request: `"GET /topics/{topic}"`, or `"GET /{path...}"` for all other paths."""

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

from millstream.http.messages import Handler, Problem, Request, Response

MAX_BODY_BYTES = 64 * 1024


class Route(msgspec.Struct, frozen=True):
    """A handler and its body limit. If it `changes` something, pages of other sites may not call it."""

    handler: Handler
    max_body_bytes: int = MAX_BODY_BYTES
    changes: bool = True


class Found(msgspec.Struct, frozen=True):
    route: Route
    path: str
    params: Mapping[str, str]


Methods = dict[str, Route]
_NONE: Mapping[str, str] = {}


class Routes:
    """`{"GET /health": handler}`; a value may be a `Route` if the defaults do not fit."""

    def __init__(self, routes: Mapping[str, Handler | Route]) -> None:
        self._exact: dict[str, Methods] = {}
        self._patterns: dict[tuple[str, ...], Methods] = {}
        self.missing: Problem | None = None
        """The answer to an unknown path while more routes are expected."""
        self.add(routes)

    def add(self, routes: Mapping[str, Handler | Route]) -> None:
        for name, given in routes.items():
            method, _, path = name.partition(" ")
            route = given if isinstance(given, Route) else Route(given, changes=method != "GET")
            if "{" in path:
                methods = self._patterns.setdefault(tuple(path.split("/")), {})
            else:
                methods = self._exact.setdefault(path, {})
            methods[method] = route

    def find(self, method: str, raw_path: str) -> Found:
        """Raises `Problem` if there is none."""
        methods, path, params = self._exact.get(raw_path), raw_path, _NONE
        if methods is None:
            methods, path, params = self._match(raw_path)
        route = methods.get("GET" if method == "HEAD" else method)
        if route is not None:
            return Found(route, path, params)
        allowed = ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))
        if method == "OPTIONS":
            return Found(Route(_allow(allowed), changes=False), path, params)
        raise Problem(405, f"{path} does not take {method}; use {allowed}", {"allow": allowed})

    def _match(self, raw_path: str) -> tuple[Methods, str, Mapping[str, str]]:
        try:
            parts = [unquote(part, errors="strict") for part in raw_path.split("/")]
        except UnicodeDecodeError:
            raise Problem(400, "the path cannot be read: it must be percent-encoded UTF-8") from None
        path = "/".join(parts)
        methods = self._exact.get(path)
        if methods is not None:
            return methods, path, _NONE
        for pattern, methods in self._patterns.items():
            params = _params(pattern, parts)
            if params is not None:
                return methods, path, params
        if self.missing is not None:
            raise self.missing
        known = sorted(self._exact)
        hint = "see /docs" if "/docs" in self._exact else f"try {', '.join(known[:20])}"
        raise Problem(404, f"there is nothing at {path}; {hint}")


def _params(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    has_rest = pattern[-1].endswith("...}")
    if len(parts) < len(pattern) or (len(parts) > len(pattern) and not has_rest):
        return None
    found = {}
    for index, wanted in enumerate(pattern):
        if wanted.endswith("...}"):
            found[wanted[1:-4]] = "/".join(parts[index:])
        elif wanted.startswith("{"):
            if not parts[index]:
                return None
            found[wanted[1:-1]] = parts[index]
        elif wanted != parts[index]:
            return None
    return found


def _allow(allowed: str) -> Handler:
    def answer(_request: Request) -> Response:
        return Response(b"", 204, headers={"allow": allowed})

    return answer
