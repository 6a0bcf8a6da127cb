from collections.abc import Iterator
from typing import Any

import pytest

from millstream.observability import logs


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Events and fields of what is logged meanwhile, from information on."""
    lines: list[tuple[str, dict[str, Any]]] = []
    logs.redirect(lambda _level, event, fields: lines.append((event, fields)), "info")
    yield lines
    logs.redirect(None)
