"""Group ids to partitions, as Kafka places them."""

import pytest

from millstream.coordinator.definition import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("ä", 228),
        ("😀", 1772899),
    ],
)
def test_strings_hash_as_in_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected == _by_definition(text)


def test_a_group_goes_to_the_partition_of_its_hash() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("zzzzzz", 50) == abs(java_string_hash("zzzzzz")) % 50


def test_the_smallest_hash_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def _by_definition(text: str) -> int:
    units = memoryview(text.encode("utf-16-le")).cast("H")
    value = sum(unit * 31 ** (len(units) - 1 - index) for index, unit in enumerate(units)) % 2**32
    return value - 2**32 if value >= 2**31 else value
