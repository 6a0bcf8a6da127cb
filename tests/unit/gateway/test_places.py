from collections import Counter
from collections.abc import Callable

import pytest

from millstream.doors import Place
from millstream.gateway.places import BadId, MessageId, Turns, parse_id
from millstream.gateway.ring import preview

PLACE = Place("telemetry.v1_a-b", 3)


def at_once(later: Callable[[], None]) -> None:
    """As if each message came at a moment of its own: nothing is left for later."""
    moments.append(later)


moments: list[Callable[[], None]] = []


def next_moment() -> None:
    while moments:
        moments.pop()()


def test_partition_then_key_then_turn() -> None:
    turns = Turns(at_once)
    assert turns.choose("t", 12, 5, b"user-1") == 5
    assert turns.choose("t", 12, None, b"user-1") == 8  # as Kafka's clients hash
    chosen = []
    for _ in range(30):
        chosen.append(turns.choose("t", 3, None, None))
        next_moment()
    assert chosen == [0, 1, 2] * 10


def test_messages_of_one_moment_go_together_up_to_a_limit() -> None:
    turns = Turns(at_once)
    assert Counter(turns.turn("t", 3) for _ in range(250)) == {0: 100, 1: 100, 2: 50}
    next_moment()
    assert turns.turn("t", 3) == 0


def test_each_topic_has_its_own_turn_and_may_shrink() -> None:
    turns = Turns(at_once)
    chosen = []
    for topic, count in (("a", 3), ("b", 3), ("a", 3), ("a", 1)):
        chosen.append(turns.turn(topic, count))
        next_moment()
    assert chosen == [0, 0, 1, 0]


def test_the_fourth_of_four_brokers_takes_three_of_twelve_partitions() -> None:
    found = preview([1, 2, 3], partitions=12, virtual_nodes=150, joins=4)
    assert {broker: len(led) for broker, led in found["before"].items()} == {"1": 4, "2": 4, "3": 4}
    assert (len(found["moved"]), found["moved_by_modulo"]) == (3, 9)
    assert found["after"]["4"] == found["moved"]


def test_who_leaves_gives_only_its_own_partitions_away() -> None:
    found = preview([1, 2, 3], partitions=12, virtual_nodes=150, leaves=2)
    assert found["moved"] == found["before"]["2"]
    assert preview([1], partitions=3, virtual_nodes=150, leaves=1)["after"] == {}


@pytest.mark.parametrize(
    "message_id",
    [
        MessageId(PLACE, 0),
        MessageId(PLACE, 2**62, "http-0a1b", 17),
        MessageId(PLACE, 7, "http-0a1b", 17, 0x0C9E41D2),
    ],
)
def test_an_id_says_where_and_whose_and_is_read_back(message_id: MessageId) -> None:
    assert parse_id(str(message_id)) == message_id


def test_the_id_of_a_delivery_begins_with_the_id_of_the_message() -> None:
    assert str(MessageId(PLACE, 5, "http-1", 2)).startswith(f"{MessageId(PLACE, 5)}:")


@pytest.mark.parametrize(
    "text",
    [
        "", "telemetry", "telemetry:0", "telemetry:x:1", "telemetry:0:-1", "telemetry:0:1:", "telemetry:0:1:m",
        "telemetry:0:1:m:x", "a b:0:1", "t:0:1\n", "t:0:1:m:1:1", "t:0:1:m:1:0C9E41D2",
        "t:99999999999:1", "ü:0:1", "t:٣:1", "x" * 100_000,
    ],
)  # fmt: skip
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(BadId):
        parse_id(text)
