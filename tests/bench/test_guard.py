"""What `make bench-quick` counts and judges; it measures no time here."""

import pytest
from bench.guard import Baseline, Figure
from bench.instructions import count


def test_instructions_of_a_request_are_the_same_in_every_run() -> None:
    first = count(1)

    assert first == count(1)
    assert set(first) == {"produce, 1 node", "fetch, 1 node"}
    assert min(first.values()) > 0


@pytest.mark.parametrize(
    ("value", "more_is_better", "loss"), [(120, False, 0.2), (120, True, -0.2), (75, True, 0.25)]
)
def test_loss_is_what_became_worse(value: float, more_is_better: bool, loss: float) -> None:
    assert Figure("x", value, more_is_better).loss_since(100) == pytest.approx(loss)


def test_counts_are_held_against_those_of_the_same_python() -> None:
    other = Baseline({"2.7": {"x": 1.0}}, {"ratio": 0.9})

    assert other.before(Figure("x", 5)) is None
    assert other.before(Figure("ratio", 0.8)) == 0.9
