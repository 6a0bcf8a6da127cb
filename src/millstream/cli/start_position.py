"""Where a reader starts: the values of `consume --from` and the offsets they mean."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from millstream.cli.errors import UsageError
from millstream.cli.options import parse_moment_ms

FORMS = "beginning, end, an offset, -N (the last N), a time such as 2026-01-31T12:00:00Z, or @MILLISECONDS"


class StartKind(Enum):
    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    LAST = auto()
    TIMESTAMP = auto()


@dataclass(frozen=True, slots=True)
class StartPosition:
    kind: StartKind
    number: int = 0

    def offset_in(self, start: int, end: int, by_time: int | None) -> int:
        """The first offset to read of a partition that holds offsets from `start` to before `end`;
        `by_time` is the first offset at or after a timestamp, where there is one."""
        match self.kind:
            case StartKind.BEGINNING:
                return start
            case StartKind.END:
                return end
            case StartKind.OFFSET:
                return min(max(self.number, start), end)
            case StartKind.LAST:
                return max(end - self.number, start)
            case StartKind.TIMESTAMP:
                return end if by_time is None else max(by_time, start)


NAMES: Mapping[str, StartPosition] = {
    "beginning": StartPosition(StartKind.BEGINNING),
    "end": StartPosition(StartKind.END),
}


def parse_start(text: str) -> StartPosition:
    if text in NAMES:
        return NAMES[text]
    if re.fullmatch(r"\d+", text):
        return StartPosition(StartKind.OFFSET, int(text))
    if re.fullmatch(r"-\d+", text):
        return StartPosition(StartKind.LAST, -int(text))
    try:
        return StartPosition(StartKind.TIMESTAMP, parse_moment_ms(text, "--from"))
    except UsageError as error:
        raise UsageError(f"--from {text!r} is not {FORMS}") from error
