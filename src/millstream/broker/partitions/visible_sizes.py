"""How many bytes a log had when it ended at an offset: fetches that wait count bytes, replicas count offsets."""

from collections import deque

# A partition whose followers are away goes on being written to: then it is known less exactly.
_MOST_MARKS = 1024


class VisibleSizes:
    __slots__ = ("_marks", "_reached")

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()
        self._reached = 0

    def mark(self, end_offset: int, appended_bytes: int) -> None:
        if len(self._marks) >= _MOST_MARKS:
            self._marks.pop()
        self._marks.append((end_offset, appended_bytes))

    def up_to(self, offset: int) -> int:
        """The bytes up to `offset`, which never goes back; at least those that were asked for before."""
        marks = self._marks
        while marks and marks[0][0] <= offset:
            self._reached = marks.popleft()[1]
        return self._reached

    def clear(self) -> None:
        self._marks.clear()
