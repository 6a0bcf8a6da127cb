import pytest

from millstream.doors import Place
from millstream.gateway.ids import BadId, MessageId, parse_id

PLACE = Place("telemetry.v1_a-b", 3)


@pytest.mark.parametrize("message_id", [MessageId(PLACE, 0), MessageId(PLACE, 2**62, "http-0a1b", 17)])
def test_an_id_says_where_and_whose_and_is_read_back(message_id: MessageId) -> None:
    assert parse_id(str(message_id)) == message_id


def test_the_id_of_a_delivery_begins_with_the_id_of_the_message() -> None:
    assert str(MessageId(PLACE, 5, "http-1", 2)).startswith(f"{MessageId(PLACE, 5)}:")


@pytest.mark.parametrize(
    "text",
    [
        "", "telemetry", "telemetry:0", "telemetry:x:1", "telemetry:0:-1", "telemetry:0:1:", "telemetry:0:1:m",
        "telemetry:0:1:m:x", "a b:0:1", "t:0:1\n", "t:0:1:m:1:1", "t:99999999999:1", "ü:0:1", "t:٣:1", "x" * 100_000,
    ],
)  # fmt: skip
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(BadId):
        parse_id(text)
