"""Publishers that wait for PUBCOMP, which is sent once their messages are in the log."""

from collections.abc import Iterable


class Releases:
    """By request token: how many messages a publisher still waits for."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        self._waiting: dict[int, list[int]] = {}

    def wait(self, token: int, numbers: set[int]) -> None:
        self._left[token] = len(numbers)
        for number in numbers:
            self._waiting.setdefault(number, []).append(token)

    def settled(self, numbers: Iterable[int]) -> list[int]:
        """These messages were appended, or never will be; returns the tokens that wait for nothing more."""
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
        """Stop waiting; False if the token was not waiting."""
        return self._left.pop(token, None) is not None
