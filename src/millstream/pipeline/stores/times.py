"""Moments as microseconds since the epoch, exactly, and back."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_us)
