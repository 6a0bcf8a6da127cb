"""A chaos run as one self-contained HTML page."""

import io
from html import escape
from pathlib import Path
from typing import Any

from millstream.testing.chaos.nemesis import FaultSpan
from millstream.testing.chaos.run import ChaosResult
from millstream.testing.history import Outcome

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #ddd;padding:.3rem .8rem;text-align:left}"
    ".good{color:#15803d}.bad{color:#b91c1c}svg{max-width:100%;height:auto}"
)
_MOST_LINES = 200


def figures(result: ChaosResult) -> dict[str, object]:
    """The outcome of a run in numbers."""
    sends = result.history.sends
    delays = sorted(took for _, took in result.acknowledged)
    return {
        "seconds": round(result.seconds, 1),
        "faults": len(result.spans),
        "sent": len(sends),
        "acknowledged": sum(send.outcome is Outcome.OK for send in sends),
        "unknown": sum(send.outcome is Outcome.UNKNOWN for send in sends),
        "read": sum(len(poll.records) for poll in result.history.polls),
        "time to acknowledge, median, ms": round(_percentile(delays, 0.5) * 1000, 2),
        "time to acknowledge, 99th percentile, ms": round(_percentile(delays, 0.99) * 1000, 2),
        "longest time without an acknowledgement, s": round(result.longest_gap, 2),
        "changes of topics": result.topic_changes,
        "partitions that did not come back": len(result.unsettled),
        "anomalies": len(result.anomalies),
    }


def write_report(result: ChaosResult, path: Path) -> str | None:
    """Write the page; returns the parts that are missing, with the reason."""
    missing = None
    try:
        picture = timeline(result.acknowledged, result.spans, result.seconds)
    except NoPictures as error:
        missing = str(error)
        picture = f"<p>{escape(missing)}</p>"
    verdict = (
        '<p class="good">No anomaly.</p>'
        if result.is_passed
        else '<p class="bad">' + escape(f"{result.why_failed[:1].upper()}{result.why_failed[1:]}.") + "</p>"
    )
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{value}</td></tr>" for name, value in figures(result).items()
    )
    faults = "".join(
        f"<tr><td>{span.start:.2f}</td><td>{span.end:.2f}</td><td>{escape(span.kind)}</td><td>{escape(span.where)}</td></tr>"
        for span in result.spans
    )
    path.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Chaos run, seed {result.plan.seed}</title>"
        f"<style>{_STYLE}</style><h1>Chaos run, seed {result.plan.seed}</h1>{verdict}<table>{rows}</table>"
        f"<h2>Timeline</h2>{picture}{_list('Anomalies', [str(each) for each in result.anomalies])}"
        f"{_list('Partitions that did not come back', result.unsettled)}"
        f"<h2>Faults</h2><table><tr><th>from</th><th>to</th><th>what</th><th>where</th></tr>{faults}</table>"
        f"{_list('What clients were told', result.notes)}</html>\n",
        encoding="utf-8",
    )
    return missing


def _list(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    shown = "".join(f"<li>{escape(line)}</li>" for line in lines[:_MOST_LINES])
    more = f"<p>and {len(lines) - _MOST_LINES} more</p>" if len(lines) > _MOST_LINES else ""
    return f"<h2>{escape(title)}</h2><ul>{shown}</ul>{more}"


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


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
    # As an image: thousands of vector dots would take megabytes.
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
