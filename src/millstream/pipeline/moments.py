"""Converts times to numbers and back, exactly and in UTC. Windows are counted from the epoch."""

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_US = 60_000_000
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MINUTES_PER_HOUR = 60


_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII
)


def micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def moment(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_us)


def minute_of(time: datetime) -> int:
    return (time - EPOCH) // MINUTE


def minute_start(minute: int) -> datetime:
    return EPOCH + minute * MINUTE


def hour_of(time: datetime) -> int:
    return (time - EPOCH) // HOUR


def hour_start(hour: int) -> datetime:
    return EPOCH + hour * HOUR


def duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def rfc3339(time: datetime) -> str:
    """The time as text in UTC, with as many digits of a second as needed."""
    text = time.astimezone(UTC).isoformat()
    return text.removesuffix("+00:00") + "Z"


def parse_rfc3339(text: str) -> datetime:
    """The time in UTC; ValueError if the text is not RFC 3339 with a zone, OverflowError if it is out of range."""
    if _RFC_3339.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not RFC 3339")
    return datetime.fromisoformat(text.upper()).astimezone(UTC)
