"""A chaos run as one HTML page that needs nothing else."""

from html import escape
from pathlib import Path

from millstream.testing.chaos.picture import NoPictures, timeline
from millstream.testing.chaos.run import ChaosResult
from millstream.testing.history import Outcome

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #ddd;padding:.3rem .8rem;text-align:left}"
    ".good{color:#15803d}.bad{color:#b91c1c}svg{max-width:100%;height:auto}"
)
_MOST_LINES = 200


def figures(result: ChaosResult) -> dict[str, object]:
    """What a run came to, in numbers."""
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
    """Write the page; returns what is missing in it, and why."""
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
