"""Order by key: only the first unsettled record of each key may be delivered."""

from collections import deque
from collections.abc import Iterator


class KeyOrder:
    __slots__ = ("_due_ms", "_keys", "_lines")

    def __init__(self) -> None:
        self._keys: dict[int, bytes] = {}
        self._due_ms: dict[int, int] = {}
        self._lines: dict[bytes, deque[int]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, offset: int, key: bytes, due_ms: int) -> bool:
        """Add an offset, in ascending order. Whether it is the first of its key; otherwise its `due_ms` is kept."""
        self._keys[offset] = key
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = deque((offset,))
            return True
        line.append(offset)
        if due_ms:
            self._due_ms[offset] = due_ms
        return False

    def clear(self) -> None:
        self._keys.clear()
        self._due_ms.clear()
        self._lines.clear()

    def wait(self, first: int, last: int, due_ms: int) -> list[int]:
        """Those of these offsets that are not the first of their key: each is due then, at the earliest."""
        found = [
            offset for offset in self._known(first, last) if self._lines[self._keys[offset]][0] != offset
        ]
        self._due_ms.update(dict.fromkeys(found, due_ms))
        return found

    def settle(self, first: int, last: int) -> list[tuple[int, int]]:
        """Remove these offsets; returns each offset that is now the first of its key, and when it is due."""
        return [each for offset in self._known(first, last) for each in self._leave(offset)]

    def _known(self, first: int, last: int) -> Iterator[int]:
        if last - first < len(self._keys):
            return (offset for offset in range(first, last + 1) if offset in self._keys)
        return iter(sorted(offset for offset in self._keys if first <= offset <= last))

    def _leave(self, offset: int) -> Iterator[tuple[int, int]]:
        key = self._keys.pop(offset)
        self._due_ms.pop(offset, None)
        line = self._lines[key]
        if line[0] != offset:
            line.remove(offset)
            return
        line.popleft()
        if line:
            yield line[0], self._due_ms.pop(line[0], 0)
        else:
            del self._lines[key]
