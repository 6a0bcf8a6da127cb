"""Pages for browsers: one that shows an OpenAPI document and tries its calls, and a built single-page app."""

import asyncio
from pathlib import Path

from millstream.http.messages import HTML, Handler, Problem, Request, Response

_DOCS = Path(__file__).parent / "static"
# Of the files that Vite and we write; mimetypes would know a thousand more, and take 0.3 MB.
_TYPES = {
    ".html": HTML,
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".ico": "image/vnd.microsoft.icon",
    ".woff2": "font/woff2",
}


def docs_routes() -> dict[str, Handler]:
    """The page at /docs; it reads /openapi.json."""
    return {
        "GET /docs": _file_route(_DOCS / "docs.html"),
        "GET /docs/docs.js": _file_route(_DOCS / "docs.js"),
        "GET /docs/docs.css": _file_route(_DOCS / "docs.css"),
    }


def app_route(root: Path) -> Handler:
    """For `"GET /{path...}"`. A path that is not a file is one of the app's addresses, and gets its page."""
    root = root.resolve()

    async def answer(request: Request) -> Response:
        file = await asyncio.to_thread(_find, root, request.params["path"])
        if file is None:
            raise Problem(404, f"there is nothing at {request.path}; see /docs")
        # Vite puts a content hash into file names, so files can be cached; the page itself must be revalidated.
        return await asyncio.to_thread(_read, file, is_lasting=file.parent.name == "assets")

    return answer


def _file_route(file: Path) -> Handler:
    async def answer(_request: Request) -> Response:
        return await asyncio.to_thread(_read, file)

    return answer


def _read(file: Path, *, is_lasting: bool = False) -> Response:
    content_type = _TYPES.get(file.suffix.lower(), "application/octet-stream")
    caching = "public, max-age=31536000, immutable" if is_lasting else "no-cache"
    return Response(file.read_bytes(), content_type=content_type, headers={"cache-control": caching})


def _find(root: Path, path: str) -> Path | None:
    index = root / "index.html"
    if path in {"", "index.html"}:
        return index if index.is_file() else None
    try:
        wanted = (root / path).resolve()
        if not wanted.is_relative_to(root):
            return None
        if wanted.is_file():
            return wanted
    except (OSError, ValueError):
        return None
    names_a_file = "." in path.rsplit("/", 1)[-1]
    return index if not names_a_file and path.split("/", 1)[0] != "api" and index.is_file() else None
