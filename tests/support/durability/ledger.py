"""What was sent to a topic and what the node said about it."""

import threading
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    partition: int
    offset: int


@dataclass(slots=True)
class Ledger:
    """Values are unique: the n-th one sent to a partition, or for a key, is `b"<name>-<n>"`."""

    sent: dict[str, int] = field(default_factory=dict)
    """How many values were sent under each name."""
    acknowledged: dict[Place, bytes] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_value(self, name: str) -> bytes:
        number = self.sent[name] = self.sent.get(name, 0) + 1
        return f"{name}-{number}".encode()

    def acknowledge(self, place: Place, value: bytes) -> None:
        with self.lock:
            before = self.acknowledged.setdefault(place, value)
        if before != value:
            self.reused.append(f"{place} was acknowledged for {before!r} and for {value!r}")


def number_of(value: bytes) -> int:
    return int(value.rpartition(b"-")[2])


def name_of(value: bytes) -> str:
    return value.rpartition(b"-")[0].decode()
