"""kio's schemas, imported one message at a time: all of them would cost 1.7 s and 50 MB at start."""

import importlib
import sys
from functools import cache
from typing import Any


def import_kio() -> None:
    """kio imports hypothesis where that is installed, which costs a broker in somebody's tests 300 ms for nothing."""
    if "kio" in sys.modules or "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]


@cache
def message_class(name: str, version: int, kind: str) -> Any:
    """The dataclass of a message, for example ("create_topics", 7, "request")."""
    import_kio()
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    wanted = name.replace("_", "") + kind
    for attribute, value in vars(module).items():
        if attribute.lower() == wanted and isinstance(value, type):
            return value
    raise LookupError(f"kio has no {kind} of {name} version {version}")
