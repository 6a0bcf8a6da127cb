"""The report as one HTML page."""

from collections.abc import Iterator
from datetime import datetime
from html import escape
from importlib.resources import files

import numpy as np

from millstream.pipeline.report import plots, tables
from millstream.pipeline.report.model import IDLE_BELOW, FleetFigures
from millstream.pipeline.report.words import (
    energy_method,
    findings,
    lasting,
    moment,
    number,
    plural,
)
from millstream.pipeline.stores.rows import Severity

# Nothing in the page can load anything, whatever a hostname or a message contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(figures: FleetFigures, made_at: datetime) -> str:
    range_text = f"{moment(figures.start)} to {moment(figures.end)} UTC"
    style = files(__package__).joinpath("report.css").read_text()
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>GPU fleet report, {range_text}</title>\n<style>\n{style}</style>\n</head>\n<body>",
            "<header>\n<h1>GPU fleet report</h1>",
            f"<p class=faint>{range_text} ({lasting(figures.end - figures.start)})</p>\n</header>\n<main>",
            *_glance(figures),
            *_heat_map(figures),
            *_over_time(figures),
            *_energy(figures),
            *_gpus(figures),
            *_events(figures),
            "</main>",
            _footer(made_at),
            "</body>\n</html>\n",
        )
    )


def _glance(figures: FleetFigures) -> Iterator[str]:
    yield '<section aria-label="At a glance">\n<dl class=tiles>'
    yield _tile("Hosts", f"{len(figures.hosts):,}", _models(figures))
    heard = f"{len(figures.unheard):,} more silent" if figures.unheard else "all heard from"
    yield _tile("GPUs", f"{len(figures.machines):,}", heard)
    hours = (figures.end - figures.start).total_seconds() / 3600
    yield _tile("Points", _short(figures.points), f"{figures.points / hours / 3600:,.0f} a second")
    idle = int((figures.utilisation.mean < IDLE_BELOW).sum())
    yield _tile("Mean utilisation", number(figures.mean_utilisation, 1, "%"), f"{plural(idle, 'GPU')} idle")
    yield _tile(
        "Energy",
        number(figures.energy.total, 0 if figures.energy.total >= 100 else 2, "kWh"),
        _mean_power(figures),
    )
    yield _tile("Events", f"{len(figures.events):,}", _severities(figures), is_html=True)
    yield "</dl>\n<ul class=glance>"
    yield from (f"<li>{escape(text)}</li>" for text in findings(figures))
    yield "</ul>\n</section>"


def _heat_map(figures: FleetFigures) -> Iterator[str]:
    if figures.utilisation.is_empty:
        return
    rows = "hosts" if len(figures.machines) > plots.MOST_GPU_ROWS else "GPUs, host by host"
    yield "<section>\n<h2>Utilisation</h2>"
    yield _figure(plots.heat_map(figures), f"Rows are {rows}. Blank: no data. Times are UTC.")
    yield "</section>"


def _over_time(figures: FleetFigures) -> Iterator[str]:
    if all(gauge.is_empty for gauge in (figures.utilisation, figures.temperature, figures.power)):
        return
    yield "<section>\n<h2>The fleet over time</h2>"
    yield _figure(
        plots.over_time(figures),
        "The band holds the middle 80 % of the GPUs. Power is the sum over the GPUs that reported.",
    )
    yield "</section>"


def _energy(figures: FleetFigures) -> Iterator[str]:
    if not figures.energy.total:
        return
    yield "<section>\n<h2>Energy</h2>"
    yield f"<p class=faint>{number(figures.energy.total, 1, 'kWh')}, {energy_method(figures)}.</p>"
    yield _figure(plots.energy(figures), _cut(figures))
    yield "</section>"


def _gpus(figures: FleetFigures) -> Iterator[str]:
    if not figures.temperature.is_empty:
        yield "<section>\n<h2>Hottest GPUs</h2>\n<p class=faint>By highest temperature.</p>"
        yield tables.gpus(figures, tables.hottest(figures), key="temperature")
        yield "</section>"
    if not figures.utilisation.is_empty:
        yield "<section>\n<h2>Idlest GPUs</h2>"
        yield (
            f"<p class=faint>By mean utilisation; idle time is the share of time below {IDLE_BELOW:.0f} %. "
            "Memory that an idle GPU holds may belong to a job that hangs.</p>"
        )
        yield tables.gpus(figures, tables.idlest(figures), key="utilisation")
        yield "</section>"


def _events(figures: FleetFigures) -> Iterator[str]:
    yield "<section>\n<h2>Events</h2>"
    if figures.events:
        yield tables.event_kinds(figures)
        yield _figure(plots.events(figures), "Red is critical, amber a warning, blue information.")
        yield tables.events(figures)
    else:
        yield "<p>No health events in this time.</p>"
    yield "</section>"


def _footer(made_at: datetime) -> str:
    return (
        f"<footer>Made {moment(made_at)} UTC by millstream pipeline report. Means are over all points. "
        "Energy between two readings of a counter counts where the time between them lies in the range.</footer>"
    )


def _figure(drawn: str, caption: str) -> str:
    below = f"<figcaption>{caption}</figcaption>\n" if caption else ""
    return f"<figure>\n{drawn}\n{below}</figure>"


def _cut(figures: FleetFigures) -> str:
    edges_s = figures.bins.edges_s
    whole = edges_s[0] == figures.start.timestamp() and edges_s[-1] == figures.end.timestamp()
    return "" if whole else "The first and the last bar may stand for less time than the others."


def _tile(name: str, value: str, note: str, *, is_html: bool = False) -> str:
    below = note if is_html else escape(note)
    return f"<div><dt>{name}</dt><dd>{value}<small>{below}</small></dd></div>"


def _models(figures: FleetFigures) -> str:
    models = {machine.model_name for machine in figures.machines if machine.model_name}
    return next(iter(models)) if len(models) == 1 else plural(len(models), "GPU model")


def _mean_power(figures: FleetFigures) -> str:
    power = figures.power
    return "" if power.is_empty else f"{np.nanmean(power.mean):,.0f} W a GPU on average"


def _severities(figures: FleetFigures) -> str:
    order = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
    counts = [(severity.value, figures.count(severity)) for severity in order]
    return (
        ", ".join(f"<span class={name}>{count:,} {name}</span>" for name, count in counts if count) or "none"
    )


def _short(count: int) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= limit:
            return f"{count / (1e3 if unit == 'k' else limit):,.1f} {unit}"
    return f"{count:,}"
