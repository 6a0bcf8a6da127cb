"""The timeline of a run: acknowledgements a second, how long they took, and when what was wrong."""

import io
from typing import Any

from millstream.testing.chaos.nemesis import FaultSpan

_COLOURS = {
    "kill -9": "#d62728",
    "restart": "#ff7f0e",
    "pause": "#9467bd",
    "cut off": "#1f77b4",
    "one-way cut": "#17becf",
    "full disk": "#8c564b",
    "failing fsync": "#e377c2",
    "clock jump": "#bcbd22",
}
_OTHER = "#7f7f7f"


class NoPictures(Exception):
    """matplotlib is not installed."""


def timeline(acknowledged: list[tuple[float, float]], spans: list[FaultSpan], seconds: float) -> str:
    """An SVG document."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPictures(
            "the timeline needs matplotlib, which the extra millstream[pipeline] installs"
        ) from error
    figure = Figure(figsize=(12, 6), layout="constrained")
    rate, delay, faults = figure.subplots(3, 1, sharex=True, height_ratios=(2, 2, 1))
    counts = [0] * (int(seconds) + 1)
    for at, _ in acknowledged:
        counts[min(int(at), len(counts) - 1)] += 1
    rate.step(range(len(counts)), counts, where="post", color="#2ca02c")
    rate.set_ylabel("acknowledged / s")
    times, delays = [at for at, _ in acknowledged], [took * 1000 for _, took in acknowledged]
    # As an image: thousands of dots would make a page of megabytes.
    delay.plot(times, delays, ".", ms=2, color="#2ca02c", rasterized=True)
    delay.set_yscale("log")
    delay.set_ylabel("time to acknowledge, ms")
    _draw_faults(faults, spans)
    for axes in (rate, delay):
        for span in spans:
            axes.axvspan(span.start, span.end, color=_COLOURS.get(span.kind, _OTHER), alpha=0.15, lw=0)
    faults.set_xlabel("seconds")
    out = io.StringIO()
    figure.savefig(out, format="svg")
    return out.getvalue()[out.getvalue().index("<svg") :]


def _draw_faults(axes: Any, spans: list[FaultSpan]) -> None:
    places = sorted({span.where for span in spans})
    for span in spans:
        row = places.index(span.where)
        axes.broken_barh(
            [(span.start, max(span.end - span.start, 0.1))],
            (row - 0.4, 0.8),
            color=_COLOURS.get(span.kind, _OTHER),
        )
        axes.text(span.start, row, f" {span.kind}", va="center", fontsize=7)
    axes.set_yticks(range(len(places)), places)
    axes.set_ylim(-0.6, max(len(places) - 0.4, 0.6))
