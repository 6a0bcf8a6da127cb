"""Renders the report as one HTML page that loads nothing: charts are SVG, and the style is inline."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template

import orjson

from millstream.pipeline.files import write_whole
from millstream.pipeline.metrics import FB_USED, GPU_TEMP, GPU_UTIL, POWER_USAGE
from millstream.pipeline.report.figures import IDLE_BELOW, Figures, GpuFigures, Progress, read_figures
from millstream.pipeline.stores.base import StoreReader
from millstream.pipeline.stores.rows import Event, EventStatus, Severity

_MOST_GPUS, _MOST_EVENTS = 10, 200
_BY_WEIGHT = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _LINES = 1000, 190, 56, 12, 24, 4


def write_report(
    store: StoreReader, start: datetime, end: datetime, output_path: Path, progress: Progress = lambda _: None
) -> Figures:
    """Write a report about the minutes that [start, end] touches, replacing the file.

    NothingToReport if the store holds nothing for them; the file is then left unchanged.
    """
    figures = read_figures(store, start, end, progress)
    progress("drawing")
    here = files(__package__)
    # Nothing in the page can load anything, whatever a hostname or a message contains: see its policy.
    page = Template(here.joinpath("report.html").read_text()).substitute(
        range=f"{_moment(figures.start)} to {_moment(figures.end)} UTC",
        style=here.joinpath("report.css").read_text(),
        body="\n".join((*_glance(figures), *_over_time(figures), *_gpus(figures), *_events(figures))),
        made_at=_moment(datetime.now(UTC)),
    )
    write_whole(output_path, page.encode(), durable=False)
    progress("")
    return figures


def _glance(figures: Figures) -> Iterator[str]:
    heard = f"{len(figures.unheard):,} more silent" if figures.unheard else "all heard from"
    seconds = (figures.end - figures.start).total_seconds()
    severities = ", ".join(f"{figures.count(each):,} {each}" for each in _BY_WEIGHT if figures.count(each))
    tiles = (
        ("Hosts", f"{len(figures.hosts):,}", ""),
        ("GPUs", f"{len(figures.gpus):,}", heard),
        ("Points", f"{figures.points:,}", f"{figures.points / seconds:,.0f} a second"),
        ("Mean utilisation", _number(figures.mean_utilisation, 1, "%"), f"{len(figures.idle):,} idle"),
        ("Energy", _number(figures.energy_kwh, 1, "kWh"), ""),
        ("Events", f"{len(figures.events):,}", severities or "none"),
    )
    yield '<section aria-label="At a glance">\n<dl class=tiles>'
    for name, value, note in tiles:
        yield f"<div><dt>{name}</dt><dd>{value}<small>{escape(note)}</small></dd></div>"
    yield "</dl>\n<ul class=glance>"
    yield from (f"<li>{escape(text)}</li>" for text in _findings(figures))
    yield "</ul>\n</section>"


def _findings(figures: Figures) -> Iterator[str]:
    """The main findings, the worst first."""
    kinds = Counter(_kind(event.kind) for event in figures.events if event.severity is Severity.CRITICAL)
    which = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
    yield f"Critical events: {which}." if kinds else "No critical events."
    hot = [each for each in figures.gpus if each.gauges[GPU_TEMP].count]
    if hot:
        hottest = max(hot, key=lambda each: each.gauges[GPU_TEMP].highest)
        yield f"The hottest GPU was {hottest.name}, which reached {hottest.gauges[GPU_TEMP].highest:.0f} °C."
    if figures.idle:
        used = sum(each.energy_kwh for each in figures.idle)
        yield f"{len(figures.idle):,} of {len(figures.gpus):,} GPUs did next to nothing, and used {used:,.1f} kWh."
    if figures.unheard:
        hosts = sorted({gpu.hostname for gpu in figures.unheard})
        more = f" and {len(hosts) - 5} more" if len(hosts) > 5 else ""
        yield f"{len(figures.unheard):,} known GPUs sent nothing in this time (on {', '.join(hosts[:5])}{more})."


def _over_time(figures: Figures) -> Iterator[str]:
    moments = figures.moments.items()
    charts = (
        ("Mean utilisation", "%", "blue", {at: each[GPU_UTIL].mean for at, each in moments}),
        ("Highest temperature of any GPU", "°C", "orange", {at: each[GPU_TEMP].highest for at, each in moments}),
        ("Power of all GPUs that reported", "W", "violet",
         {at: each[POWER_USAGE].sum_of_means or math.nan for at, each in moments}),
    )  # fmt: skip
    drawn = [(chart[0], line_chart(*chart)) for chart in charts]
    if any(svg for _, svg in drawn):
        yield "<section>\n<h2>The fleet over time</h2>"
        for name, svg in drawn:
            if svg:
                yield f"<figure>\n{svg}\n<figcaption>{name}</figcaption>\n</figure>"
        yield "</section>"


def line_chart(title: str, unit: str, colour: str, values: Mapping[datetime, float]) -> str:
    """A line over time as SVG. `values` are in order of time; NaN leaves a gap. Times on the axis are UTC."""
    known = [value for value in values.values() if not math.isnan(value)]
    if not known:
        return ""
    scale = 10.0 ** math.floor(math.log10(max(*known, 1e-9)))
    top = next(step * scale for step in (1, 2, 2.5, 5, 10) if step * scale >= max(known) * 0.999999)
    start, end = min(values), max(values)
    width_s, height = max((end - start).total_seconds(), 1.0), _HEIGHT - _TOP - _BOTTOM

    def place(at: datetime, value: float) -> tuple[float, float]:
        x = _LEFT + (at - start).total_seconds() / width_s * (_WIDTH - _LEFT)
        return x, _TOP + (1 - max(value, 0.0) / top) * height

    def label(x: float, y: float, anchor: str, text: str) -> str:
        place = f'x="{x}" y="{y:.1f}" text-anchor="{anchor}"'
        return f'<text {place} font-size="11" fill="var(--faint)">{escape(text)}</text>'

    drawn = [
        label(_LEFT, _HEIGHT - 6, "start", _moment(start)),
        label(_WIDTH, _HEIGHT - 6, "end", _moment(end)),
    ]
    for number in range(_LINES + 1):
        y = _TOP + (1 - number / _LINES) * height
        drawn.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--grid)"/>')
        told = f"{top * number / _LINES:,.4g}" + (f" {unit}" if number == _LINES else "")
        drawn.append(label(_LEFT - 6, y + 4, "end", told))
    for is_gap, run in groupby(values.items(), key=lambda item: math.isnan(item[1])):
        places = [place(at, value) for at, value in run if not is_gap]
        # A single point makes no line; a line from the point to itself shows as a dot.
        ends = [(x + 1, y) for x, y in places] if len(places) == 1 else []
        if places:
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places + ends)
            drawn.append(
                f'<polyline fill="none" stroke="var(--{colour})" stroke-width="2" points="{points}"/>'
            )
    told = f"{title}: between {min(known):,.4g} and {max(known):,.4g} {unit}."
    head = f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>{escape(title)}</title><desc>{escape(told)}</desc>'
    return f"{head}{''.join(drawn)}</svg>"


def _gpus(figures: Figures) -> Iterator[str]:
    hot = [each for each in figures.gpus if each.gauges[GPU_TEMP].count]
    if hot:
        hot.sort(key=lambda each: (-each.gauges[GPU_TEMP].highest, -each.gauges[GPU_TEMP].mean))
        yield f"<section>\n<h2>Hottest GPUs</h2>\n{_gpu_table(hot[:_MOST_GPUS])}\n</section>"
    used = [each for each in figures.gpus if each.gauges[GPU_UTIL].count]
    if used:
        used.sort(key=lambda each: each.gauges[GPU_UTIL].mean)
        yield (
            f"<section>\n<h2>Idlest GPUs</h2>\n<p class=faint>Idle time is the share of time below {IDLE_BELOW:.0f} %. "
            "Memory that an idle GPU holds may belong to a job that hangs.</p>"
            f"\n{_gpu_table(used[:_MOST_GPUS])}\n</section>"
        )


def _gpu_table(gpus: Sequence[GpuFigures]) -> str:
    return _table(
        {
            "GPU": f"{escape(each.name)}<span class=uuid>{escape(each.gpu.uuid)}</span>",
            "Utilisation %": _number(each.gauges[GPU_UTIL].mean, 1),
            "Idle time %": _number(100 * each.idle_share),
            "Highest °C": _number(each.gauges[GPU_TEMP].highest),
            "Mean °C": _number(each.gauges[GPU_TEMP].mean, 1),
            "Mean W": _number(each.gauges[POWER_USAGE].mean),
            "Memory GiB": _number(each.gauges[FB_USED].mean / 1024, 1),
            "Energy kWh": _number(each.energy_kwh, 2),
        }
        for each in gpus
    )


def _events(figures: Figures) -> Iterator[str]:
    yield "<section>\n<h2>Events</h2>"
    names = {each.gpu.uuid: each.name for each in figures.gpus}
    # Critical events first; among equals the latest first.
    ordered = sorted(figures.events, key=lambda event: _BY_WEIGHT.index(event.severity))
    if ordered:
        yield _table(_event(event, names) for event in ordered[:_MOST_EVENTS])
    else:
        yield "<p>No health events in this time.</p>"
    if len(ordered) > _MOST_EVENTS:
        yield f"<p class=faint>{len(ordered) - _MOST_EVENTS:,} more are in the store.</p>"
    yield "</section>"


def _event(event: Event, names: Mapping[str, str]) -> dict[str, str]:
    minutes = max(0, round((event.end - event.start) / timedelta(minutes=1)))
    lasted = f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
    return {
        "Severity": f"<span class='badge {event.severity}'>{event.severity}</span>",
        "Kind": escape(_kind(event.kind)),
        "GPU": escape(names.get(event.uuid, f"{event.hostname} / {event.uuid}")),
        "Start": _moment(event.start),
        "Lasted": f"{lasted}, still open" if event.status is EventStatus.OPEN else lasted,
        "What happened": f"{escape(event.message)}<br><span class=evidence>{escape(_evidence(event.evidence))}</span>",
    }


def _evidence(text: str) -> str:
    """The JSON of an event's evidence as `peak celsius 96, minutes 12`."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    if not isinstance(found, dict):
        return text
    shown = ((name, f"{each:,.6g}" if isinstance(each, float) else str(each)) for name, each in found.items())
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown)


def _kind(kind: str) -> str:
    """`xid_burst` as a person would write it."""
    return kind.replace("_", " ").replace("xid", "XID").replace("gpu", "GPU")


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _number(value: float, digits: int = 0, unit: str = "") -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f} {unit}".rstrip()


def _table(rows: Iterable[Mapping[str, str]]) -> str:
    """A table of at least one row; all rows have the same columns."""
    cells = list(rows)
    head = "".join(f"<th scope=col>{name}</th>" for name in cells[0])
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row.values()) + "</tr>" for row in cells)
    return f"<div class=wide><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
