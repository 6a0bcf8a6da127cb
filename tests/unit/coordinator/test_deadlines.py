"""Deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.deadlines import Deadlines

operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 50)),
    ),
    max_size=40,
)


@given(operations)
def test_deadlines_behave_like_a_plain_dictionary(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for action, key, number in steps:
        if action == "set":
            deadlines.set(key, number)
            model[key] = number
        elif action == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            popped = deadlines.pop_due(number)
            earliest = min(model.values(), default=number + 1)
            assert (popped is None) == (earliest > number)
            if popped is not None:
                assert model.pop(popped) == earliest
        assert deadlines.next() == min(model.values(), default=None)
        assert len(deadlines) == len(model)


def test_many_heartbeats_leave_one_entry_behind() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for now in range(100_000):
        deadlines.set("member", now + 10)
        deadlines.next()
    assert len(deadlines._heap) == 1
