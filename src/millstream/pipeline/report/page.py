"""The report as one HTML page."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from html import escape
from importlib.resources import files

import orjson

from millstream.pipeline.report.chart import line_chart
from millstream.pipeline.report.figures import IDLE_BELOW, Figures, GpuFigures
from millstream.pipeline.stores.rows import Event, EventStatus, Severity

# Nothing in the page can load anything, whatever a hostname or a message contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_MOST_GPUS = 10
_MOST_EVENTS = 200
_BY_WEIGHT = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_NO_VALUE = "–"


def page(figures: Figures, made_at: datetime) -> str:
    range_text = f"{_moment(figures.start)} to {_moment(figures.end)} UTC"
    style = files(__package__).joinpath("report.css").read_text()
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>GPU fleet report, {range_text}</title>\n<style>\n{style}</style>\n</head>\n<body>",
            f"<header>\n<h1>GPU fleet report</h1>\n<p class=faint>{range_text}</p>\n</header>\n<main>",
            *_glance(figures),
            *_over_time(figures),
            *_gpus(figures),
            *_events(figures),
            "</main>",
            _footer(made_at),
            "</body>\n</html>\n",
        )
    )


def _footer(made_at: datetime) -> str:
    return (
        f"<footer>Made {_moment(made_at)} UTC by millstream pipeline report. Means are over all points. "
        "Energy is what the GPUs' counters grew by, or else their power over time.</footer>"
    )


def _glance(figures: Figures) -> Iterator[str]:
    heard = f"{len(figures.unheard):,} more silent" if figures.unheard else "all heard from"
    idle = sum(each.utilisation.mean < IDLE_BELOW for each in figures.gpus)
    hours = (figures.end - figures.start) / timedelta(hours=1)
    utilisation = figures.mean_utilisation
    severities = ", ".join(f"{figures.count(each):,} {each}" for each in _BY_WEIGHT if figures.count(each))
    yield '<section aria-label="At a glance">\n<dl class=tiles>'
    yield _tile("Hosts", f"{len(figures.hosts):,}", "")
    yield _tile("GPUs", f"{len(figures.gpus):,}", heard)
    yield _tile("Points", f"{figures.points:,}", f"{figures.points / hours / 3600:,.0f} a second")
    yield _tile(
        "Mean utilisation",
        _number(math.nan if utilisation is None else utilisation, 1, "%"),
        f"{idle:,} idle",
    )
    yield _tile("Energy", _number(figures.energy_kwh, 1, "kWh"), "")
    yield _tile("Events", f"{len(figures.events):,}", severities or "none")
    yield "</dl>\n<ul class=glance>"
    yield from (f"<li>{escape(text)}</li>" for text in _findings(figures))
    yield "</ul>\n</section>"


def _findings(figures: Figures) -> Iterator[str]:
    """What someone who reads nothing else should know, the worst first."""
    critical = [event for event in figures.events if event.severity is Severity.CRITICAL]
    kinds = Counter(_kind(event.kind) for event in critical)
    which = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
    yield f"Critical events: {which}." if critical else "No critical events."
    hot = [each for each in figures.gpus if each.temperature.count]
    if hot:
        hottest = max(hot, key=lambda each: each.temperature.highest)
        yield f"The hottest GPU was {hottest.name}, which reached {hottest.temperature.highest:.0f} °C."
    idle = [each for each in figures.gpus if each.utilisation.mean < IDLE_BELOW]
    if idle:
        used = sum(each.energy_kwh for each in idle)
        yield f"{len(idle):,} of {len(figures.gpus):,} GPUs did next to nothing, and used {used:,.1f} kWh."
    if figures.unheard:
        hosts = sorted({gpu.hostname for gpu in figures.unheard})
        more = f" and {len(hosts) - 5} more" if len(hosts) > 5 else ""
        yield f"{len(figures.unheard):,} known GPUs sent nothing in this time (on {', '.join(hosts[:5])}{more})."


def _over_time(figures: Figures) -> Iterator[str]:
    moments = figures.moments
    charts = (
        line_chart("Mean utilisation", "%", "blue", {time: each.utilisation.mean for time, each in moments.items()}),
        line_chart(
            "Highest temperature", "°C", "orange",
            {time: each.temperature.highest if each.temperature.count else math.nan for time, each in moments.items()},
        ),
        line_chart(
            "Power of all GPUs", "W", "violet",
            {time: each.watts or math.nan for time, each in moments.items()},
        ),
    )  # fmt: skip
    names = ("Mean utilisation", "Highest temperature of any GPU", "Power of all GPUs that reported")
    if any(charts):
        yield "<section>\n<h2>The fleet over time</h2>"
        for drawn, name in zip(charts, names, strict=True):
            if drawn:
                yield f"<figure>\n{drawn}\n<figcaption>{name}</figcaption>\n</figure>"
        yield "</section>"


def _gpus(figures: Figures) -> Iterator[str]:
    hot = [each for each in figures.gpus if each.temperature.count]
    if hot:
        hot.sort(key=lambda each: (-each.temperature.highest, -each.temperature.mean))
        yield f"<section>\n<h2>Hottest GPUs</h2>\n{_gpu_table(hot[:_MOST_GPUS])}\n</section>"
    used = [each for each in figures.gpus if each.utilisation.count]
    if used:
        used.sort(key=lambda each: each.utilisation.mean)
        yield "<section>\n<h2>Idlest GPUs</h2>"
        yield (
            f"<p class=faint>Idle time is the share of time below {IDLE_BELOW:.0f} %. Memory that an idle GPU holds "
            f"may belong to a job that hangs.</p>\n{_gpu_table(used[:_MOST_GPUS])}\n</section>"
        )


def _gpu_table(gpus: Sequence[GpuFigures]) -> str:
    heads = (
        "GPU",
        "Utilisation %",
        "Idle time %",
        "Highest °C",
        "Mean °C",
        "Mean W",
        "Memory GiB",
        "Energy kWh",
    )
    rows = [
        (
            f"{escape(each.name)}<span class=uuid>{escape(each.gpu.uuid)}</span>",
            _number(each.utilisation.mean, 1),
            _number(100 * each.idle_windows / each.windows if each.windows else math.nan),
            _number(each.temperature.highest if each.temperature.count else math.nan),
            _number(each.temperature.mean, 1),
            _number(each.power.mean),
            _number(each.memory.mean / 1024, 1),
            _number(each.energy_kwh, 2),
        )
        for each in gpus
    ]
    return _table(heads, rows)


def _events(figures: Figures) -> Iterator[str]:
    yield "<section>\n<h2>Events</h2>"
    if not figures.events:
        yield "<p>No health events in this time.</p>\n</section>"
        return
    names = {each.gpu.uuid: each.name for each in figures.gpus}
    # The critical ones first, the latest first among equals.
    ordered = sorted(figures.events, key=lambda event: _BY_WEIGHT.index(event.severity))
    rows = [
        _event(event, names.get(event.uuid, f"{event.hostname} / {event.uuid}"))
        for event in ordered[:_MOST_EVENTS]
    ]
    yield _table(("Severity", "Kind", "GPU", "Start", "Lasted", "What happened"), rows)
    if len(ordered) > len(rows):
        yield f"<p class=faint>{len(ordered) - len(rows):,} more are in the store.</p>"
    yield "</section>"


def _event(event: Event, gpu: str) -> tuple[str, ...]:
    minutes = max(0, round((event.end - event.start) / timedelta(minutes=1)))
    still = ", still open" if event.status is EventStatus.OPEN else ""
    return (
        f"<span class='badge {event.severity}'>{event.severity}</span>",
        escape(_kind(event.kind)),
        escape(gpu),
        _moment(event.start),
        f"{minutes // 60} h {minutes % 60:02d} min{still}" if minutes >= 60 else f"{minutes} min{still}",
        f"{escape(event.message)}<br><span class=evidence>{escape(_evidence(event.evidence))}</span>",
    )


def _evidence(text: str) -> str:
    """The JSON of an event's evidence as `peak celsius 96, minutes 12`."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    if not isinstance(found, dict):
        return text
    return ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in found.items())


def _shown(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _kind(kind: str) -> str:
    """`xid_burst` as a person would write it."""
    return kind.replace("_", " ").replace("xid", "XID").replace("gpu", "GPU")


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _number(value: float, digits: int = 0, unit: str = "") -> str:
    return _NO_VALUE if math.isnan(value) else f"{value:,.{digits}f} {unit}".rstrip()


def _tile(name: str, value: str, note: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}<small>{escape(note)}</small></dd></div>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th scope=col>{name}</th>" for name in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<div class=wide><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )
