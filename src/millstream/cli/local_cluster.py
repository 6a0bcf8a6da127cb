"""Where the cluster is that `millstream cluster up` runs on this machine, so that commands find it by themselves."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def running_local_cluster() -> str | None:
    """The addresses of the cluster that was started last and still runs, as --bootstrap takes them."""
    try:
        process, bootstrap = _file().read_text().split()
        os.kill(int(process), 0)
    except (OSError, ValueError):
        return None
    return bootstrap


@contextmanager
def known_as_running(bootstrap: str) -> Iterator[None]:
    """Until the end of the block. A home that cannot be written to costs no more than the convenience."""
    file, words = _file(), f"{os.getpid()} {bootstrap}\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(words)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        # Another one may have been started since.
        if file.exists() and file.read_text() == words:
            file.unlink()


def _file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "millstream" / "local-cluster"
