"""What `make bench-quick` counts and judges; it measures no time here."""

import pytest
from bench.guard import Rounds
from bench.instructions import count


def test_instructions_of_a_request_are_the_same_in_every_run() -> None:
    first = count(1)

    assert first == count(1)
    assert set(first) == {"produce, 1 node", "fetch, 1 node"}
    assert min(first.values()) > 0


@pytest.mark.parametrize(
    ("base", "now", "more_is_better", "loss"),
    [
        ([100, 100, 100], [120, 120, 120], False, 0.2),
        ([100, 100, 100], [120, 120, 120], True, -0.2),
        ([100, 100, 100], [75, 75, 75], True, 0.25),
    ],
)
def test_loss_is_what_became_worse(
    base: list[float], now: list[float], more_is_better: bool, loss: float
) -> None:
    change = Rounds("x", [50, 50, 50], base, now, more_is_better).change

    assert change.loss == pytest.approx(loss)
    assert change.before == 2


def test_rounds_that_other_work_made_worse_are_no_loss() -> None:
    base = [100.0] * 7
    best_is_as_good = Rounds("x", [1.0] * 7, base, [100.0, *[150.0] * 6], more_is_better=False)
    two_are_as_good = Rounds("x", [1.0] * 7, [*base[:5], 170.0, 170.0], [170.0] * 7, more_is_better=False)
    six_are_worse = Rounds("x", [1.0] * 7, [*base[:6], 170.0], [170.0] * 7, more_is_better=False)

    assert best_is_as_good.change.loss == pytest.approx(0)
    assert two_are_as_good.change.loss == pytest.approx(0)
    assert six_are_worse.change.loss == pytest.approx(0.7)
