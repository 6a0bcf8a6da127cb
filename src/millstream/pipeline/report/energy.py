"""Energy from a counter that only grows until it is reset, or else from power over time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from millstream.pipeline.report.model import Floats
from millstream.pipeline.report.windows import Windows

MJ_PER_KWH = 3.6e9
"""Millijoules."""
_WATT_SECONDS_PER_KWH = 3.6e6

ReadValues = Callable[[float, float], Sequence[float]]
"""The counter's values in [start_s, end_s), in the order of time; none when the points are no longer kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """kWh since the first moment, at moments that do not go back."""

    time_s: Floats
    kwh: Floats
    resets: int = 0

    def by_bin(self, edges_s: Floats) -> Floats:
        return np.diff(np.interp(edges_s, self.time_s, self.kwh))


def from_counter(windows: Windows, values_in: ReadValues) -> Curve | None:
    """None when the counter was seen only once, so that nothing can be said.

    A counter that grows has its first value at a window's lowest and its last at its highest. Where a window's lowest
    is below what was seen before, the counter was reset, and the window's points tell what happened.
    """
    if not len(windows.start_s) or (len(windows.start_s) == 1 and windows.count[0] < 2):
        return None
    increases, resets = _increases(windows, values_in)
    ends_s = windows.start_s + windows.width_s
    return Curve(
        np.concatenate([windows.start_s[:1], ends_s]),
        np.concatenate([[0.0], np.cumsum(increases)]) / MJ_PER_KWH,
        resets,
    )


def from_power(windows: Windows) -> Curve | None:
    """The mean power of each window over its length; a window without points counts nothing."""
    if not len(windows.start_s):
        return None
    ends_s = windows.start_s + windows.width_s
    after = np.cumsum(windows.mean * windows.width_s) / _WATT_SECONDS_PER_KWH
    before = np.concatenate([[0.0], after[:-1]])
    return Curve(np.stack([windows.start_s, ends_s], 1).ravel(), np.stack([before, after], 1).ravel())


def _increases(windows: Windows, values_in: ReadValues) -> tuple[Floats, int]:
    low, high = windows.low, windows.high
    if len(low) > 1 and (low[1:] >= high[:-1]).all():
        return np.concatenate([high[:1] - low[:1], np.diff(high)]), 0
    increases = np.zeros(len(low))
    resets = 0
    last = low[0]
    for number in range(len(low)):
        # A reset in the first window shows only in the second, or, when there is no second, not at all.
        is_doubtful = low[number] < last or (number == 0 and (len(low) == 1 or low[1] < high[0]))
        if not is_doubtful:
            increases[number], last = high[number] - last, high[number]
            continue
        start_s = float(windows.start_s[number])
        values = values_in(start_s, start_s + float(windows.width_s[number]))
        if not values:
            values = _guess(float(last), float(low[number]), float(high[number]))
        if number == 0:
            last = values[0]
        for value in values:
            resets += value < last
            increases[number] += value - last if value >= last else value
            last = value
    return increases, resets


def _guess(last: float, low: float, high: float) -> list[float]:
    """What the counter did at least, when its points are gone."""
    return [high, low] if low < last <= high else [low, high]
