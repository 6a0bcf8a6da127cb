"""Where `group reset-offsets` moves to: the options, and the offset each of them means for a partition."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto

from millstream.cli.errors import UsageError
from millstream.config.units import parse_duration_ms

OPTIONS = "--to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration and --shift-by"


class TargetKind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    TIMESTAMP = auto()
    SHIFT = auto()


@dataclass(frozen=True, slots=True)
class ResetTarget:
    kind: TargetKind
    number: int = 0

    def offset_in(self, start: int, end: int, committed: int | None, by_time: int | None) -> int | None:
        """The new offset of a partition that holds offsets from `start` to before `end`, kept within these.

        None when it cannot be told: a shift of a position that was never committed.
        """
        match self.kind:
            case TargetKind.EARLIEST:
                return start
            case TargetKind.LATEST:
                return end
            case TargetKind.OFFSET:
                wanted = self.number
            case TargetKind.TIMESTAMP:
                wanted = end if by_time is None else by_time
            case TargetKind.SHIFT:
                if committed is None:
                    return None
                wanted = committed + self.number
        return min(max(wanted, start), end)


def parse_target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    now_ms: int,
) -> ResetTarget:
    chosen: list[ResetTarget] = []
    if to_earliest:
        chosen.append(ResetTarget(TargetKind.EARLIEST))
    if to_latest:
        chosen.append(ResetTarget(TargetKind.LATEST))
    if to_offset is not None:
        chosen.append(ResetTarget(TargetKind.OFFSET, to_offset))
    if to_datetime is not None:
        chosen.append(ResetTarget(TargetKind.TIMESTAMP, parse_moment_ms(to_datetime)))
    if by_duration is not None:
        # Negative timestamps mean other things to ListOffsets, and no message is older than 1970.
        chosen.append(ResetTarget(TargetKind.TIMESTAMP, max(0, now_ms - parse_span_ms(by_duration))))
    if shift_by is not None:
        chosen.append(ResetTarget(TargetKind.SHIFT, shift_by))
    if len(chosen) != 1:
        raise UsageError(f"give exactly one of {OPTIONS}")
    return chosen[0]


def parse_moment_ms(text: str) -> int:
    """RFC 3339, such as 2026-01-31T12:00:00Z; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--to-datetime {text!r} is not a time such as 2026-01-31T12:00:00Z") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def parse_span_ms(text: str) -> int:
    try:
        span_ms = parse_duration_ms(text)
    except ValueError as error:
        raise UsageError(f"--by-duration {error}") from error
    if span_ms < 0:
        raise UsageError(f"--by-duration {text!r} is not a duration such as 30m or 2h")
    return span_ms


def parse_topics(words: Sequence[str]) -> dict[str, frozenset[int] | None]:
    """`T` (all partitions, None) or `T:0,1,2`, by topic; the same topic twice adds up."""
    wanted: dict[str, frozenset[int] | None] = {}
    for word in words:
        topic, colon, numbers = word.partition(":")
        parts = [part.strip() for part in numbers.split(",")] if colon else []
        if not topic or not all(part.isdecimal() for part in parts):
            raise UsageError(f"--topic {word!r} is not of the form TOPIC or TOPIC:0,1,2")
        indexes = frozenset(map(int, parts)) if colon else None
        former = wanted.get(topic, frozenset())
        wanted[topic] = None if indexes is None or former is None else former | indexes
    return wanted
