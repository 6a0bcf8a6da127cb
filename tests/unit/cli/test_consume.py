import pytest

from millstream.cli.consume import StartKind, StartPosition, parse_start
from millstream.cli.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", StartPosition(StartKind.BEGINNING)),
        ("end", StartPosition(StartKind.END)),
        ("0", StartPosition(StartKind.OFFSET, 0)),
        ("17", StartPosition(StartKind.OFFSET, 17)),
        ("-5", StartPosition(StartKind.LAST, 5)),
        ("@1700000000000", StartPosition(StartKind.TIMESTAMP, 1700000000000)),
        ("2023-11-14T22:13:20Z", StartPosition(StartKind.TIMESTAMP, 1700000000000)),
        ("2023-11-14T22:13:20.5", StartPosition(StartKind.TIMESTAMP, 1700000000500)),
        ("2023-11-15T00:13:20+02:00", StartPosition(StartKind.TIMESTAMP, 1700000000000)),
    ],
)
def test_every_form_is_understood(text: str, expected: StartPosition) -> None:
    assert parse_start(text) == expected


@pytest.mark.parametrize("text", ["", "middle", "--3", "@x", "1.5", "2023-13-01"])
def test_anything_else_is_wrong_usage_and_lists_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match="beginning, end"):
        parse_start(text)


@pytest.mark.parametrize(
    ("position", "by_time", "expected"),
    [
        (StartPosition(StartKind.BEGINNING), None, 10),
        (StartPosition(StartKind.END), None, 20),
        (StartPosition(StartKind.OFFSET, 15), None, 15),
        (StartPosition(StartKind.OFFSET, 3), None, 10),
        (StartPosition(StartKind.OFFSET, 99), None, 20),
        (StartPosition(StartKind.LAST, 4), None, 16),
        (StartPosition(StartKind.LAST, 400), None, 10),
        (StartPosition(StartKind.TIMESTAMP, 1), 12, 12),
        (StartPosition(StartKind.TIMESTAMP, 1), None, 20),
    ],
)
def test_the_first_offset_lies_within_the_partition(
    position: StartPosition, by_time: int | None, expected: int
) -> None:
    assert position.offset_in(10, 20, by_time) == expected
