"""Group commit: decisions made while an append is under way share the next one."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from millstream.coordinator.decision import Reply

R = TypeVar("R")
E = TypeVar("E")

# What a record costs in a batch beyond its key and value, rounded up.
_RECORD_OVERHEAD_BYTES = 20


class Encoded(NamedTuple, Generic[R]):
    record: R
    key: bytes
    value: bytes | None


def size_of(records: Sequence[Encoded[Any]]) -> int:
    return sum(len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES for _, key, value in records)


class Round(msgspec.Struct, Generic[R, E]):
    """A batch being built; its replies are sent and its effects started when it is durable."""

    records: list[Encoded[R]] = msgspec.field(default_factory=list)
    replies: list[Reply[Any]] = msgspec.field(default_factory=list)
    effects: list[E] = msgspec.field(default_factory=list)
    size_bytes: int = 0
    sealed: bool = False


class Rounds(Generic[R, E]):
    __slots__ = ("_limit_bytes", "_queue", "pending_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._queue: deque[Round[R, E]] = deque()
        self.pending_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, records: list[Encoded[R]], *, atomic: bool) -> None:
        if atomic:
            self._add_together(records)
            return
        part: list[Encoded[R]] = []
        part_bytes = 0
        for record in records:
            size = size_of((record,))
            if part and part_bytes + size > self._limit_bytes:
                self._add_together(part)
                part, part_bytes = [], 0
            part.append(record)
            part_bytes += size
        self._add_together(part)

    def hold(self, replies: Sequence[Reply[Any]], effects: Sequence[E]) -> None:
        """Hold replies and effects until everything decided so far is durable, because they may depend on it."""
        self._queue[-1].replies.extend(replies)
        self._queue[-1].effects.extend(effects)

    def begin(self) -> Round[R, E]:
        """The oldest round, closed to further records because its append starts now."""
        current = self._queue[0]
        current.sealed = True
        return current

    def finish(self) -> None:
        self.pending_bytes -= self._queue.popleft().size_bytes

    def _add_together(self, records: list[Encoded[R]]) -> None:
        if not records:
            return
        size = size_of(records)
        last = self._queue[-1] if self._queue else None
        if last is None or last.sealed or last.size_bytes + size > self._limit_bytes:
            last = Round()
            self._queue.append(last)
        last.records.extend(records)
        last.size_bytes += size
        self.pending_bytes += size
