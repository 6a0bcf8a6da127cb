import pytest

from millstream.cli.errors import UsageError
from millstream.cli.options import parse_address, parse_pairs, parse_topics


def test_pairs_split_at_the_first_equals_sign() -> None:
    assert parse_pairs(["a=1", "b=x=y", "c="], "--config") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_a_pair_without_name_or_value_is_wrong_usage(pair: str) -> None:
    with pytest.raises(UsageError, match="--config"):
        parse_pairs([pair], "--config")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:9092", ("::1", 9092)),
    ],
)
def test_an_address_is_host_and_port(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address, "--listen") == expected


@pytest.mark.parametrize("address", ["localhost", "9092", "host:port", "host:65536", "host:-1"])
def test_a_wrong_address_is_wrong_usage(address: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        parse_address(address, "--listen")


def test_topics_are_whole_or_in_part_and_add_up() -> None:
    assert parse_topics(["a", "b:0,2", "b:5", "c:1", "c", "c:3"]) == {
        "a": None,
        "b": frozenset({0, 2, 5}),
        "c": None,
    }


@pytest.mark.parametrize("word", ["", ":1", "a:", "a:x", "a:1,,2", "a:-1"])
def test_anything_else_is_wrong_usage(word: str) -> None:
    with pytest.raises(UsageError, match="TOPIC:0,1,2"):
        parse_topics([word])
