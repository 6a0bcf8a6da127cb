"""Which lines of a refused post are the bad ones.

The server takes the good lines of a post and names a reason for the bad ones, but not, or not always, which they are.
Sending lines again is harmless, so we send parts of the post: first measurement by measurement, because a conflict of
field types concerns a measurement as a whole, then halves in order of time, because it concerns one shard of time.
"""

import re
from collections.abc import Callable, Sequence

from millstream.pipeline.stores.influx.connection import Refusal

Send = Callable[[Sequence[int]], Refusal | None]

_DROPPED = re.compile(r"dropped=(\d+)")
_MEASUREMENT = re.compile(r"(?:\\.|[^\\, ])*", re.DOTALL)
_TOO_LARGE = 413


def find_refused(send: Send, lines: Sequence[str], refusal: Refusal) -> dict[int, str]:
    """The refused lines, by their number, and why; all others are stored when this returns."""
    by_measurement: dict[str, list[int]] = {}
    for row in sorted(range(len(lines)), key=lambda row: _time(lines[row])):
        match = _MEASUREMENT.match(lines[row])
        by_measurement.setdefault(match[0] if match is not None else "", []).append(row)
    if len(by_measurement) == 1:
        return _narrow(send, next(iter(by_measurement.values())), refusal)
    refused: dict[int, str] = {}
    for rows in by_measurement.values():
        answer = send(rows)
        if answer is not None:
            refused |= _narrow(send, rows, answer)
    return refused


def _time(line: str) -> int:
    stamp = line.rsplit(" ", 1)[-1].strip()
    return int(stamp) if stamp.lstrip("-").isdecimal() else 0


def _narrow(send: Send, rows: Sequence[int], refusal: Refusal) -> dict[int, str]:
    """`rows` have just been refused, in whole or in part."""
    if len(rows) == 1 or _dropped(refusal) == len(rows):
        return dict.fromkeys(rows, refusal.reason)
    refused: dict[int, str] = {}
    middle = len(rows) // 2
    for half in (rows[:middle], rows[middle:]):
        answer = send(half)
        if answer is not None:
            refused |= _narrow(send, half, answer)
    return refused


def _dropped(refusal: Refusal) -> int:
    """How many lines the server says it left out; it says 0 of lines that it could not read."""
    if refusal.status == _TOO_LARGE:
        return 0
    match = _DROPPED.search(refusal.reason)
    return int(match[1]) if match is not None else 0
