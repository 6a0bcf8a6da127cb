"""Builds the driver, or says why it cannot be built."""

import os
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-pthread")
_APT_TIMEOUT_SECONDS = 300


class DriverUnavailableError(Exception):
    """No native driver on this machine; the message says what is missing."""


def build(directory: Path) -> Path:
    """The path of an up-to-date driver, compiled into `directory` when needed."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise DriverUnavailableError("no C compiler found (cc, gcc or clang)")
    binary = directory / "driver"
    sources = sorted(SOURCES.glob("*.c"))
    newest = max(path.stat().st_mtime for path in [*sources, *SOURCES.glob("*.h")])
    if binary.exists() and binary.stat().st_mtime >= newest:
        return binary
    directory.mkdir(parents=True, exist_ok=True)
    complaint = _compile(compiler, sources, binary)
    if complaint and _install_headers():
        complaint = _compile(compiler, sources, binary)
    if complaint:
        raise DriverUnavailableError(f"the driver did not compile: {complaint}")
    return binary


def _compile(compiler: str, sources: list[Path], binary: Path) -> str:
    """Empty on success, else the compiler's first complaint."""
    # Of this process alone: two benches may start at once.
    partial = binary.with_suffix(f".{os.getpid()}.partial")
    command = [compiler, *_FLAGS, "-o", str(partial), *map(str, sources), "-lrdkafka"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        partial.replace(binary)
        return ""
    return next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())


def _install_headers() -> bool:
    """True when Debian's librdkafka-dev is there now; only root may install it."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return False
    command = [apt, "install", "-y", "--no-install-recommends", "librdkafka-dev"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, env=environment, timeout=_APT_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
