"""A line over time as SVG, drawn by hand: a report needs no more, and loads nothing for it."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1000, 190, 56, 12, 24
_LINES = 4
_STEPS = (1, 2, 2.5, 5, 10)


def line_chart(title: str, unit: str, colour: str, values: Mapping[datetime, float]) -> str:
    """`values` in the order of time; NaN leaves a gap. Times on the axis are UTC."""
    known = [value for value in values.values() if not math.isnan(value)]
    if not known:
        return ""
    top = _round_up(max(*known, 1e-9))
    start, end = min(values).timestamp(), max(values).timestamp()
    width_s = max(end - start, 1.0)

    def place(time: datetime, value: float) -> tuple[float, float]:
        x = _LEFT + (time.timestamp() - start) / width_s * (_WIDTH - _LEFT)
        return round(x, 1), round(_TOP + (1 - max(value, 0.0) / top) * (_HEIGHT - _TOP - _BOTTOM), 1)

    grid = "".join(_grid_line(top * number / _LINES, number, unit) for number in range(_LINES + 1))
    paths = "".join(
        f'<polyline fill="none" stroke="var(--{colour})" stroke-width="2" stroke-linejoin="round" points="'
        + " ".join(f"{x},{y}" for x, y in run) + '"/>'
        for run in _runs([place(time, value) if not math.isnan(value) else None for time, value in values.items()])
    )  # fmt: skip
    told = f"{title}: between {min(known):,.4g} and {max(known):,.4g} {unit}."
    return (
        f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>{escape(title)}</title><desc>{escape(told)}</desc>'
        f"{grid}{paths}{_time(min(values), _LEFT, 'start')}{_time(max(values), _WIDTH, 'end')}</svg>"
    )


def _grid_line(value: float, number: int, unit: str) -> str:
    y = _TOP + (1 - number / _LINES) * (_HEIGHT - _TOP - _BOTTOM)
    label = f"{value:,.4g} {unit}" if number == _LINES else f"{value:,.4g}"
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--grid)"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" font-size="11" fill="var(--faint)">{label}</text>'
    )


def _time(time: datetime, x: int, anchor: str) -> str:
    return (
        f'<text x="{x}" y="{_HEIGHT - 6}" text-anchor="{anchor}" font-size="11" fill="var(--faint)">'
        f"{time:%Y-%m-%d %H:%M}</text>"
    )


def _round_up(value: float) -> float:
    """The next number that is easy to divide."""
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in _STEPS if step * scale >= value * 0.999999)


def _runs(places: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for place in places:
        if place is not None:
            runs[-1].append(place)
        elif runs[-1]:
            runs.append([])
    # A single place has no line; drawn to itself, it is a dot.
    return [run if len(run) > 1 else [*run, *((x + 1, y) for x, y in run)] for run in runs if run]
