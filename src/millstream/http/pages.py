"""Pages for browsers: one that shows an OpenAPI document and tries its calls, and a built single-page app."""

import asyncio
import mimetypes
from pathlib import Path

from millstream.http.messages import HTML, Handler, Problem, Request, Response

_DOCS = Path(__file__).parent / "static"
_TYPES = mimetypes.MimeTypes(filenames=())
for _kind, _ending in (
    ("text/javascript", ".js"), ("text/javascript", ".mjs"), ("image/svg+xml", ".svg"), ("font/woff2", ".woff2"),
    ("application/json", ".map"), ("application/manifest+json", ".webmanifest"),
):  # fmt: skip
    _TYPES.add_type(_kind, _ending)


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
    kind = _TYPES.guess_type(file.name)[0] or "application/octet-stream"
    caching = "public, max-age=31536000, immutable" if is_lasting else "no-cache"
    content_type = (
        HTML if kind == "text/html" else f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
    )
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
