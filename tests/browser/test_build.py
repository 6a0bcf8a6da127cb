"""The page as it is built: small, whole, and with its own unit tests."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from millstream.console import static_dir

CONSOLE = Path(__file__).resolve().parents[2] / "console"
MOST_BYTES_COMPRESSED = 150_000


def test_page_is_small() -> None:
    static = static_dir()
    if static is None:
        pytest.skip("the console is not built, because the npm packages could not be had; see `make console`")

    size = sum(len(gzip.compress(file.read_bytes())) for file in static.rglob("*") if file.is_file())

    assert size < MOST_BYTES_COMPRESSED


def test_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (CONSOLE / "package-lock.json").read_text()


def test_units_of_the_page() -> None:
    npm = shutil.which("npm") or shutil.which("npm", path=str(CONSOLE.parent / ".stamps" / "node" / "bin"))
    if npm is None or not (CONSOLE / "node_modules" / ".package-lock.json").exists():
        pytest.skip("the npm packages of the console are not installed; see `make console`")

    done = subprocess.run(
        [npm, "test"], cwd=CONSOLE, capture_output=True, text=True, timeout=400, check=False,
        env={**os.environ, "PYTHONPATH": str(CONSOLE.parent / ".stamps" / "node")},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
