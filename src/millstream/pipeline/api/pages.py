"""What a browser gets: the documentation page, and the console where it was built."""

import mimetypes
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

_STATIC = Path(__file__).parent / "static"
_TYPES = mimetypes.MimeTypes(filenames=())
_TYPES.add_type("text/javascript", ".js")
_TYPES.add_type("text/javascript", ".mjs")
_TYPES.add_type("image/svg+xml", ".svg")
_TYPES.add_type("font/woff2", ".woff2")
_TYPES.add_type("application/json", ".map")
_TYPES.add_type("application/manifest+json", ".webmanifest")

_WELCOME = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Millstream telemetry</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}</style>
<h1>Millstream telemetry</h1>
<p>The query API is running. The console's page is not built in this installation; <code>scripts/build-console</code>
builds it.</p>
<ul><li><a href="/docs">Documentation</a>, to try the calls out</li>
<li><a href="/openapi.json">OpenAPI document</a></li>
<li><a href="/api/v1/gpus">The GPUs</a>, <a href="/api/v1/events">their events</a></li></ul></html>
"""


def page_routes(console_dir: Path | None) -> list[Route]:
    routes = [
        Route("/docs", _static("docs.html", "text/html"), methods=["GET"]),
        Route("/docs/docs.js", _static("docs.js", "text/javascript"), methods=["GET"]),
        Route("/docs/docs.css", _static("docs.css", "text/css"), methods=["GET"]),
    ]
    if console_dir is None:
        return [*routes, Route("/", _welcome, methods=["GET"])]
    return [*routes, Route("/{path:path}", _Console(console_dir.resolve()).serve, methods=["GET"])]


def _static(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        del request
        return FileResponse(_STATIC / name, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return answer


async def _welcome(request: Request) -> Response:
    del request
    return HTMLResponse(_WELCOME)


class _Console:
    """The console's files. A path that is no file is one of the page's own addresses, and gets the page."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def serve(self, request: Request) -> Response:
        path: str = request.path_params["path"]
        file = await anyio.to_thread.run_sync(self._find, path)
        if file is None:
            raise HTTPException(404)
        kind = _TYPES.guess_type(file.name)[0] or "application/octet-stream"
        # Vite puts a hash of the content into the names of what it builds; the page itself must be asked for anew.
        lasting = file.parent.name == "assets"
        caching = "public, max-age=31536000, immutable" if lasting else "no-cache"
        return FileResponse(file, media_type=kind, headers={"Cache-Control": caching})

    def _find(self, path: str) -> Path | None:
        index = self._root / "index.html"
        if path in {"", "index.html"}:
            return index if index.is_file() else None
        try:
            wanted = (self._root / path).resolve()
            if not wanted.is_relative_to(self._root):
                return None
            if wanted.is_file():
                return wanted
        except (OSError, ValueError):
            return None
        names_a_file = "." in path.rsplit("/", 1)[-1]
        return index if not names_a_file and path.split("/", 1)[0] != "api" and index.is_file() else None
