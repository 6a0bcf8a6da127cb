"""A wheel and a source distribution carry the page, so that `pip install` needs no Node."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from millstream.console import static_dir

ROOT = Path(__file__).resolve().parents[3]


def build(target: str, directory: Path, root: Path = ROOT, **environment: str) -> tuple[Path, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)],
        cwd=root, capture_output=True, text=True, timeout=300, check=False, env=environment or None,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = directory.iterdir()
    return made, done.stdout + done.stderr


def test_the_page_is_in_both_packages(tmp_path: Path) -> None:
    if static_dir() is None:
        pytest.skip("the console is not built, because the npm packages could not be had; see `make console`")
    wheel, _ = build("wheel", tmp_path / "wheel")
    source, _ = build("sdist", tmp_path / "sdist")

    names = zipfile.ZipFile(wheel).namelist()
    assert "millstream/console/static/index.html" in names
    assert any(name.startswith("millstream/console/static/assets/") for name in names)
    assert not any(name.startswith(("tests/", "console/")) for name in names)
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "src/millstream/console/static/index.html",
        "console/package-lock.json",
        "scripts/hatch_build.py",
    } <= packed
    assert not any("node_modules" in name for name in packed)


def test_a_wheel_without_node_says_so(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for name in ("pyproject.toml", "README.md"):
        clone.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, clone)
    without = shutil.ignore_patterns("static", "node_modules", "__pycache__", "*.pyc")
    for name in ("src", "console", "scripts"):
        shutil.copytree(ROOT / name, clone / name, ignore=without)

    # No Node on this PATH, and no index that pip could take one from.
    wheel, said = build(
        "wheel",
        tmp_path / "wheel",
        clone,
        PATH="/nowhere",
        PIP_NO_INDEX="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )

    assert "the web console was not built: Node 20.19 or newer is not here" in said
    assert "millstream/__init__.py" in zipfile.ZipFile(wheel).namelist()
