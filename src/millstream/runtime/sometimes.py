"""Marks for situations that tests must reach now and then. A recorder counts them; without one a mark costs a call and
a comparison.

A simulator that never reaches a situation proves nothing about it. So every mark is declared here, and a long campaign
reports those that never occurred.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

MARKS: tuple[str, ...] = (
    "a batch that was sent again was found in the log",
    "a broker was fenced",
    "a coordinator was deposed while its disk was full",
    "a damaged segment was repaired",
    "a directory with records and without an identity was set aside",
    "a disk was full",
    "a flush failed",
    "a follower cut its log",
    "a founder was refused",
    "a leader was elected from the eligible set",
    "a leader with damage made way for another",
    "a log was compacted",
    "a log was cut at recovery",
    "a log was removed while it was flushed",
    "a missing segment was found",
    "a move of replicas came to its end",
    "a move was taken back half-way",
    "a node was cut off from the others",
    "a node was refused by another",
    "a partition lost its last leader",
    "a repair ran during a move",
    "a replica began within a batch",
    "a replica moved away",
    "a segment was rewritten after the checkpoint that describes it",
    "a small file beside the records was made again",
    "a snapshot of the quorum was sent to one that lags",
    "a stale checkpoint entry was met",
    "the directory of an earlier topic was in the way of a new log",
    "the file of an empty segment was made again",
    "a write of the quorum log was refused",
    "a write was refused for too few in sync",
    "entries of the quorum that were not committed were replaced",
    "logs in doubt were compared and the best one leads",
    "segments below the log's start were deleted",
)
"""All marks. A test compares them with the calls in the code."""

_recorder: Callable[[str], None] | None = None


def sometimes(mark: str) -> None:
    """Count a situation that some test should reach."""
    if _recorder is not None:
        _recorder(mark)


@contextmanager
def recorded(counts: dict[str, int]) -> Iterator[None]:
    """Count the marks that this process reaches meanwhile."""
    global _recorder  # noqa: PLW0603 - there is one for the whole program, as marks are anywhere in it

    def count(mark: str) -> None:
        counts[mark] = counts.get(mark, 0) + 1

    before, _recorder = _recorder, count
    try:
        yield
    finally:
        _recorder = before
