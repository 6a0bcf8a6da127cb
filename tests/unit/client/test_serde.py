from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client import BYTES, JSON, STRING
from millstream.client.serde import deserializer_of, serializer_of

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back(text: str) -> None:
    assert STRING.deserialize(bytes(STRING.serialize(text))) == text


@given(JSON_VALUES)
def test_json_comes_back(value: Any) -> None:
    assert JSON.deserialize(bytes(JSON.serialize(value))) == value


@pytest.mark.parametrize(("serde", "value"), [(STRING, 1), (BYTES, "text")])
def test_wrong_type_is_refused(serde: Any, value: object) -> None:
    with pytest.raises(TypeError, match="needed, not"):
        serde.serialize(value)


def test_any_callable_can_take_the_place_of_a_serde() -> None:
    assert serializer_of(str.encode) is str.encode
    assert deserializer_of(len) is len
    assert serializer_of(None) is None


def test_bytes_are_left_as_they_are() -> None:
    assert deserializer_of(BYTES) is None
