"""Times as numbers and back, exactly and in UTC. Windows are counted from the epoch."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_US = 60_000_000
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MINUTES_PER_HOUR = 60


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


def rfc3339(time: datetime) -> str:
    """In UTC, with as many digits of a second as it has."""
    text = time.astimezone(UTC).isoformat()
    return text.removesuffix("+00:00") + "Z"
