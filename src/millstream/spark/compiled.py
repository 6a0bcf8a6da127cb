"""Loops as machine code: compiled by numba on first use and kept in a cache directory, so that a worker loads them in
milliseconds."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`function` as machine code; to the type checker it stays what it was."""
    import numba

    def made(cache: bool) -> F:
        return cast(F, numba.njit(cache=cache, nogil=True)(function))

    try:
        return made(cache=True)
    except RuntimeError:
        # numba found no directory it may write to (a read-only installation, no home): any other will do.
        if not _use_temporary_cache():
            return made(cache=False)
    try:
        return made(cache=True)
    except RuntimeError:
        return made(cache=False)


def _use_temporary_cache() -> bool:
    import numba

    directory = Path(tempfile.gettempdir()) / f"millstream-numba-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        # Code is loaded from there, so it must be ours.
        if directory.stat().st_uid != os.getuid():
            return False
    except OSError:
        return False
    numba.config.CACHE_DIR = str(directory)  # type: ignore[attr-defined]
    return True
