"""Order by key: of all records of a key that are not settled, the first is the only one that may be delivered."""

from collections import deque
from collections.abc import Iterator


class KeyOrder:
    __slots__ = ("_keys", "_lines")

    def __init__(self) -> None:
        self._keys: dict[int, bytes] = {}
        self._lines: dict[bytes, deque[int]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, offset: int, key: bytes) -> bool:
        """Offsets come in their order. Whether it is the first of its key."""
        self._keys[offset] = key
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = deque((offset,))
            return True
        line.append(offset)
        return False

    def settle(self, first: int, last: int) -> list[int]:
        """These are done with; returns what stands first in its line now."""
        return [each for offset in self._known(first, last) for each in self._leave(offset)]

    def _known(self, first: int, last: int) -> Iterator[int]:
        if last - first < len(self._keys):
            return (offset for offset in range(first, last + 1) if offset in self._keys)
        return iter(sorted(offset for offset in self._keys if first <= offset <= last))

    def _leave(self, offset: int) -> Iterator[int]:
        key = self._keys.pop(offset)
        line = self._lines[key]
        if line[0] != offset:
            line.remove(offset)
            return
        line.popleft()
        if line:
            yield line[0]
        else:
            del self._lines[key]
