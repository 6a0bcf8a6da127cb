from pathlib import Path

import pytest

from millstream import console
from millstream.console import static_dir


def test_there_is_no_page_before_it_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(console, "_STATIC", tmp_path)

    assert static_dir() is None


def test_the_page_is_where_its_index_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "index.html").touch()
    monkeypatch.setattr(console, "_STATIC", tmp_path)

    assert static_dir() == tmp_path
