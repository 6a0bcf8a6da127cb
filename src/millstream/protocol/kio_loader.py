"""kio's schemas, imported one message at a time: all of them would cost 1.7 s and 50 MB at start."""

import importlib
import sys
from functools import cache
from typing import Any


def _import_kio() -> Any:
    """kio imports hypothesis where that is installed, which costs a broker in somebody's tests 300 ms for nothing."""
    if "kio" in sys.modules or "hypothesis" in sys.modules:
        return importlib.import_module("kio.serial")
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("kio.serial")
    finally:
        del sys.modules["hypothesis"]


@cache
def message_class(name: str, version: int, kind: str) -> Any:
    """The dataclass of a message, for example ("create_topics", 7, "request")."""
    _import_kio()
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    wanted = name.replace("_", "") + kind
    for attribute, value in vars(module).items():
        if attribute.lower() == wanted and isinstance(value, type):
            return value
    raise LookupError(f"kio has no {kind} of {name} version {version}")


@cache
def message_reader(name: str, version: int) -> Any:
    serial = _import_kio()
    return serial.entity_reader(message_class(name, version, "request"))
