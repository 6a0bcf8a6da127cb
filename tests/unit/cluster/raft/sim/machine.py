"""A state machine whose whole history is in one digest."""

from collections.abc import Callable, Sequence
from hashlib import sha256

from millstream.cluster.raft.entries import Entry


class HistoryMachine:
    def __init__(self, on_apply: Callable[[Entry, bytes], None]) -> None:
        self.digest = b""
        self._on_apply = on_apply

    def apply(self, entries: Sequence[Entry]) -> list[int]:
        for entry in entries:
            self.digest = sha256(self.digest + entry.data).digest()
            self._on_apply(entry, self.digest)
        return [entry.index for entry in entries]

    def restore(self, data: bytes) -> None:
        self.digest = data

    def snapshot(self) -> Callable[[], bytes]:
        digest = self.digest
        return lambda: digest
