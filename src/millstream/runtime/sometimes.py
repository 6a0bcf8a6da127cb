"""Marks at situations that tests must reach now and then. Whoever wants to know installs a recorder; without one a mark
costs a call and a comparison.

A simulator that never meets a situation proves nothing about it. So every mark is declared here, and a long campaign
names those that never occurred.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

MARKS: tuple[str, ...] = ()
"""Every mark there is. A test compares them with the calls in the code."""

_recorder: Callable[[str], None] | None = None


def sometimes(mark: str) -> None:
    """This happens, and should in some test."""
    if _recorder is not None:
        _recorder(mark)


@contextmanager
def recorded(counts: dict[str, int]) -> Iterator[None]:
    """Count the marks that are met meanwhile, in this process."""
    global _recorder  # noqa: PLW0603 - there is one for the whole program, as marks are anywhere in it

    def count(mark: str) -> None:
        counts[mark] = counts.get(mark, 0) + 1

    before, _recorder = _recorder, count
    try:
        yield
    finally:
        _recorder = before
