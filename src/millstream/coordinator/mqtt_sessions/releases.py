"""Publishers that wait for their PUBCOMP: it says that what they published is in the log for all to read."""

from collections.abc import Iterable


class Releases:
    """Who waits, by the token of its request, and for how many messages still."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        self._waiting: dict[int, list[int]] = {}

    def wait(self, token: int, numbers: set[int]) -> None:
        self._left[token] = len(numbers)
        for number in numbers:
            self._waiting.setdefault(number, []).append(token)

    def settled(self, numbers: Iterable[int]) -> list[int]:
        """These messages were appended, or never will be: who waits for nothing more is told."""
        free = []
        for number in numbers:
            for token in self._waiting.pop(number, ()):
                left = self._left.get(token, 0)
                if left == 1:
                    del self._left[token]
                    free.append(token)
                elif left:
                    self._left[token] = left - 1
        return free

    def give_up(self, token: int) -> bool:
        """Whether it was waiting until now."""
        return self._left.pop(token, None) is not None
