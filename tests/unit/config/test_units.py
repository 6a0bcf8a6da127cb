import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config.units import format_duration_ms, format_size, parse_duration_ms, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("16KB", 16 << 10),
        ("16 kb", 16 << 10),
        ("1GB", 1 << 30),
        ("1GiB", 1 << 30),
        ("1G", 1 << 30),
        ("1.5MB", 3 << 19),
        ("12", 12),
        ("12B", 12),
        (4096, 4096),
        ("unlimited", -1),
        (-1, -1),
        (0, 0),
    ],
)
def test_sizes_are_read_in_powers_of_1024(text: object, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("5ms", 5),
        ("1.5s", 1_500),
        ("10m", 600_000),
        ("10min", 600_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("2 w", 1_209_600_000),
        ("0", 0),
        (0, 0),
        ("unlimited", -1),
        (-1, -1),
    ],
)
def test_durations_are_read_in_milliseconds(text: object, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text", ["", "GB", "1XB", "1,5GB", "-5KB", "0.3B", True, None, ["1GB"], "1 GB 2", "1e3"]
)
def test_what_is_not_a_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"size|unit|whole|negative"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "7", 7, "7x", "-3s", "0.5ms", True, None, {}])
def test_what_is_not_a_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"duration|unit|whole|negative"):
        parse_duration_ms(text)


def test_a_duration_without_a_unit_is_told_what_to_write() -> None:
    with pytest.raises(ValueError, match="7s or 7ms"):
        parse_duration_ms(7)


@given(st.integers(min_value=-1, max_value=2**63 - 1))
def test_what_is_written_is_read_back(amount: int) -> None:
    assert parse_size(format_size(amount)) == amount
    assert parse_duration_ms(format_duration_ms(amount)) == amount


def test_the_shortest_exact_spelling_is_written() -> None:
    assert [format_size(n) for n in (1 << 30, 1_048_588, 1536, -1)] == [
        "1GB",
        "1048588B",
        "1536B",
        "unlimited",
    ]
    assert [format_duration_ms(n) for n in (604_800_000, 90_000, 5, 1_209_600_000)] == [
        "7d",
        "90s",
        "5ms",
        "2w",
    ]
