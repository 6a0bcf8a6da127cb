import pytest
from confluent_kafka import Message as RawMessage

from millstream.client import ClientError
from millstream.client.message import BytesMessage
from millstream.client.positions import first_of_each, known, places, with_offsets


def test_offsets_can_be_written_flat_or_nested() -> None:
    flat = with_offsets({("a", 0): 5, ("b", 1): 6})
    nested = with_offsets({"a": {0: 5}, "b": {1: 6}})

    assert places(flat) == places(nested) == [("a", 0), ("b", 1)]
    assert [each.offset for each in flat] == [each.offset for each in nested] == [5, 6]


def test_other_forms_are_refused_with_the_form_to_use() -> None:
    with pytest.raises(ClientError, match=r"write \{\(topic, partition\): offset\}"):
        with_offsets({"a": 5})  # type: ignore[dict-item]


def test_positions_without_an_offset_are_left_out() -> None:
    assert places(known(with_offsets({("a", 0): -1001, ("a", 1): 0}))) == [("a", 1)]


def test_first_offset_of_each_partition_is_where_to_go_back_to() -> None:
    messages = [
        BytesMessage(RawMessage(topic="a", partition=partition, offset=offset), None)
        for partition, offset in ((0, 7), (1, 3), (0, 8), (1, 4))
    ]

    assert first_of_each(messages) == {("a", 0): 7, ("a", 1): 3}
