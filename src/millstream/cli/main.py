"""The entry point. Imports almost nothing, because `millstream serve` may restart its process first."""

import os
import sys
from collections.abc import Mapping, Sequence

# glibc returns buffers above 128 KiB to the kernel after each use, which costs a broker a page fault for every 4 KiB it
# receives. It reads these two variables only when the process starts.
ALLOCATOR_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": "4194304", "MALLOC_TRIM_THRESHOLD_": "67108864"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    open_closed_streams()
    if arguments is None:
        arguments = sys.argv[1:]
        if requested_command(arguments) == "serve":
            tune_allocator(os.environ)
    from millstream.cli.app import build_app
    from millstream.cli.errors import run_guarded

    words = list(arguments)
    # During shell completion the command line is in the environment.
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    command = requested_command(words or line.split()[1:])
    return run_guarded(lambda: build_app(command)(words, prog_name="millstream"))


def open_closed_streams() -> None:
    """Replace standard streams that the parent has closed with /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the process


def requested_command(arguments: Sequence[str]) -> str | None:
    """The first word that is not an option; no option before the command takes a value."""
    return next((word for word in arguments if not word.startswith("-")), None)


def tune_allocator(environ: Mapping[str, str]) -> None:
    """Restart this process with the allocator settings of a broker, unless they are set."""
    missing = {name: value for name, value in ALLOCATOR_SETTINGS.items() if name not in environ}
    if missing and sys.platform == "linux" and sys.executable:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**environ, **missing})  # noqa: S606
