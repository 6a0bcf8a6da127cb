"""What documents and docstrings of rooms name is there: files move, and their names in texts do not by themselves."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "src" / "millstream"
# The changelog tells of files as they were.
DOCUMENTS = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
ROOMS = sorted(path.parent for path in HOUSE.rglob("__init__.py"))

_QUOTED = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:py|md|toml|java|xml)(?:::\w+)?")
_TESTS = re.compile(r"tests(?:/[\w-]+)+/?")
_WORD = re.compile(r"[a-z0-9][a-z_0-9]*(?:\.py|/)?")


@cache
def files() -> frozenset[str]:
    """Every file of the project, and every directory, from its top."""
    tops = ("src", "tests", "docs", "bench", "examples", "scripts", "console/src")
    return frozenset(str(path.relative_to(ROOT)) for top in tops for path in (ROOT / top).rglob("*"))


def is_there(name: str) -> bool:
    """As a path from the top, or from any directory further down."""
    path, _, test = name.partition("::")
    found = [ROOT / each for each in files() if each == path or each.endswith(f"/{path}")]
    return bool(found) and (not test or any(f"def {test}(" in each.read_text() for each in found))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_document_names_exist(document: Path) -> None:
    quoted = _QUOTED.findall(document.read_text())
    paths = [path for words in quoted for path in _FILE.findall(words)]
    paths += [words.rstrip("/") for words in quoted if _TESTS.fullmatch(words)]
    assert [path for path in paths if not is_there(path)] == []


def names_in(room: Path) -> Iterator[str]:
    """Modules, smaller rooms, and whatever the room's own files define."""
    for path in room.iterdir():
        yield path.stem
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield node.name


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: str(path.relative_to(HOUSE.parent)))
def test_files_that_the_docstring_of_a_room_names_exist(room: Path) -> None:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    # Other rooms, and what stands beside the room.
    others = {path.name for path in ROOMS} | {path.stem for path in room.parent.glob("*.py")}
    known = {*names_in(room), *others, *sys.stdlib_module_names}
    words = [word for word in _QUOTED.findall(text) if _WORD.fullmatch(word)]
    assert [word for word in words if word.removesuffix(".py").rstrip("/") not in known] == []
    paths = [path for words in _QUOTED.findall(text) for path in _FILE.findall(words)]
    assert [path for path in paths if not is_there(path)] == []
