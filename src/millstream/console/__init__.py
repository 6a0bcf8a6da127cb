"""The web console: a page built from `console/` at the repository's top, shipped inside the package.

Holds the built files (`static/`, made by scripts/build_console.py) and says where they are, for any HTTP server.
Imports no other room.
"""

from pathlib import Path

__all__ = ["static_dir"]


_STATIC = Path(__file__).parent / "static"


def static_dir() -> Path | None:
    """The directory of `index.html` and what it loads; None in a source tree where the page was not built."""
    return _STATIC if (_STATIC / "index.html").is_file() else None
