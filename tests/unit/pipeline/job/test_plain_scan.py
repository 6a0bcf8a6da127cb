"""The compiled loops against what Python itself says of numbers and times."""

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest

pytest.importorskip("numba", reason="the `spark` extra is not installed")

import numpy as np
import numpy.typing as npt

from millstream.pipeline.job.plain import scan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_bytes(text: str) -> "npt.NDArray[np.uint8]":
    return np.frombuffer(text.encode(), np.uint8)


def test_numbers_are_the_nearest_doubles() -> None:
    dice = random.Random(3)
    texts = [
        "0",
        "9007199254740993",
        "9223372036854775807",
        "18446744073709551615",
        "0.1",
        "0.30000000000000004",
    ]
    for _ in range(5000):
        whole = str(dice.randrange(10 ** dice.randrange(1, 20)))
        digits = "".join(dice.choices("0123456789", k=dice.randrange(0, 12)))
        texts.append(dice.choice(("", "-")) + whole + (f".{digits}" if digits else ""))
    hard = 0
    for text in texts:
        data = as_bytes(text)
        assert scan.number_end(data, 0, len(data)) == len(data), text
        value, trouble = scan.number_of(data, 0, len(data))
        if trouble == 0:
            assert repr(value) == repr(float(text)), text
        hard += trouble != 0
    assert hard < len(texts) / 2


@pytest.mark.parametrize("text", ["", "-", "01", "1.", ".5", "+1", "1e5", "1.5E3", "x", "9" * 31, "--1"])
def test_what_is_no_plain_number_is_left_alone(text: str) -> None:
    data = as_bytes(text + ",")
    assert scan.number_end(data, 0, len(data)) != len(text) or not text


def test_times_are_those_of_the_calendar() -> None:
    dice = random.Random(4)
    for _ in range(3000):
        moment = datetime(1, 1, 2, tzinfo=UTC) + timedelta(seconds=dice.randrange(86400 * 365 * 9990))
        moment += timedelta(microseconds=dice.randrange(1_000_000))
        zone = timezone(timedelta(minutes=dice.randrange(-17 * 60, 17 * 60)))
        for shown in (moment.isoformat().replace("+00:00", "Z"), _in_zone(moment, zone)):
            data = as_bytes(shown)
            assert scan.time_of(data, 0, len(data)) == (moment - EPOCH) // timedelta(microseconds=1), shown


def _in_zone(moment: datetime, zone: timezone) -> str:
    try:
        return moment.astimezone(zone).isoformat()
    except OverflowError:
        return moment.isoformat()


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-32T00:00:00Z",
        "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00",
        "2026-01-01T00:00:00+18:01", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00z", "0000-01-01T00:00:00Z",
        "1900-02-29T00:00:00Z", "2026-01-01T00:00:00ZZ", "2026/01/01T00:00:00Z", "2026-01-01T00:00:00.1234567890Z",
    ],
)  # fmt: skip
def test_what_is_no_plain_time_is_left_alone(text: str) -> None:
    data = as_bytes(text)
    assert scan.time_of(data, 0, len(data)) == scan.NO_TIME


def test_strings_end_where_they_end() -> None:
    for text, holds in (("abc", 0), ("", 0), ('a\\"b', scan.ESCAPED), ("é😀", scan.NOT_ASCII)):
        data = as_bytes(text + '"rest')
        assert scan.string_end(data, 0, len(data)) == (len(text.encode()) + 1, holds)
    for wrong in (
        b"no end",
        b'a\nb"',
        b'\\u0041"',
        b'\xff"',
        b'\xc3"',
        b'\xed\xa0\x80"',
        b'\xf4\x90\x80\x80"',
        b'\xc0\x80"',
        b"\\",
    ):
        data = np.frombuffer(wrong, np.uint8)
        assert scan.string_end(data, 0, len(data))[0] == -1
