"""Where the built page lies."""

from pathlib import Path

_STATIC = Path(__file__).parent / "static"


def static_dir() -> Path | None:
    """The directory of `index.html` and what it loads; None in a source tree where the page was not built."""
    return _STATIC if (_STATIC / "index.html").is_file() else None
