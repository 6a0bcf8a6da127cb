"""Energy from counters that are reset, and from power."""

import numpy as np
import pytest

from millstream.pipeline.report.energy import MJ_PER_KWH, from_counter, from_power
from millstream.pipeline.report.windows import Windows

KWH = MJ_PER_KWH


def windows_of(minutes: list[list[float]]) -> Windows:
    """A window for each minute with values; an empty list is a minute without."""
    rows = [
        (0.0, 60.0 * number, 60.0, min(values), max(values), sum(values) / len(values), float(len(values)))
        for number, values in enumerate(minutes)
        if values
    ]
    gpu, *others = np.array(rows, dtype=np.float64).reshape(len(rows), 7).T
    return Windows(gpu.astype(np.int64), *others)


def used(minutes: list[list[float]], *, has_points: bool = True) -> tuple[float, int]:
    def values_in(start_s: float, end_s: float) -> list[float]:
        assert end_s - start_s == 60
        return minutes[int(start_s // 60)] if has_points else []

    curve = from_counter(windows_of(minutes), values_in)
    assert curve is not None
    assert (np.diff(curve.time_s) >= 0).all()
    return float(curve.kwh[-1]) * MJ_PER_KWH, curve.resets


def test_a_counter_that_grows_gives_last_minus_first() -> None:
    assert used([[100, 110], [120, 130], [], [190, 250]]) == (150, 0)


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        ([[100, 110], [5, 15], [20, 30]], 10 + 15 + 15),
        ([[100, 110], [120, 4, 9], [20, 30]], 10 + 10 + 9 + 21),
        ([[100, 110, 3], [10, 20]], 10 + 3 + 17),
        ([[100, 110, 3]], 10 + 3),
        ([[100], [110], [130, 1, 2, 140]], 10 + 20 + 1 + 1 + 138),
    ],
    ids=["between minutes", "within a minute", "in the first minute", "in the only minute", "passing the old value"],
)  # fmt: skip
def test_what_was_used_around_a_reset_is_counted_from_zero(
    minutes: list[list[float]], expected: float
) -> None:
    assert used(minutes) == (pytest.approx(expected), 1)


def test_every_reset_counts() -> None:
    assert used([[100, 110], [0, 10], [5, 20], [1, 2]]) == (10 + 10 + 20 + 2, 3)


def test_without_points_a_reset_counts_what_is_sure() -> None:
    assert used([[100, 110], [5, 15], [20, 30]], has_points=False) == (10 + 15 + 15, 1)
    assert used([[100, 110], [120, 4, 9], [20, 30]], has_points=False) == (10 + 10 + 4 + 26, 1)
    assert used([[100, 110]], has_points=False) == (10, 0)


def test_one_reading_says_nothing() -> None:
    assert from_counter(windows_of([[100]]), lambda _start, _end: []) is None
    assert from_counter(windows_of([]), lambda _start, _end: []) is None


def test_energy_is_spread_over_the_time_between_two_readings() -> None:
    curve = from_counter(windows_of([[0, KWH], [], [], [4 * KWH, 4 * KWH]]), lambda _start, _end: [])
    assert curve is not None
    assert list(curve.by_bin(np.arange(0.0, 241.0, 60.0))) == pytest.approx([1, 1, 1, 1])


def test_power_over_time_leaves_gaps_out() -> None:
    curve = from_power(windows_of([[3000.0], [], [1000.0, 5000.0]]))
    assert curve is not None
    assert list(curve.by_bin(np.arange(0.0, 241.0, 60.0))) == pytest.approx([0.05, 0, 0.05, 0])
    assert from_power(windows_of([])) is None
