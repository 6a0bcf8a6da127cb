"""The tables of a report."""

from collections import Counter
from html import escape

import numpy as np

from millstream.pipeline.report.model import FleetFigures, Floats, Machine
from millstream.pipeline.report.words import (
    NO_VALUE,
    evidence,
    kind_name,
    lasting,
    moment,
    number,
    plural,
)
from millstream.pipeline.stores.rows import Event, Severity

_MOST_GPUS = 10
_MOST_EVENTS = 200
_BY_WEIGHT = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def hottest(figures: FleetFigures) -> list[int]:
    return _first(-figures.temperature.highest, -figures.temperature.mean)


def idlest(figures: FleetFigures) -> list[int]:
    return _first(figures.utilisation.mean, -figures.idle_share)


def _first(*keys: Floats) -> list[int]:
    """The places of the lowest keys; those without a value are left out."""
    order = np.lexsort(keys[::-1])
    return [int(place) for place in order[:_MOST_GPUS] if not np.isnan(keys[0][place])]


def gpus(figures: FleetFigures, places: list[int], *, key: str) -> str:
    """One row for each GPU; the column that decided is set in bold."""
    temperature, power = figures.temperature, figures.power
    heads = (
        ("GPU", ""), ("Utilisation", "n"), ("Idle time", "n"), ("Highest °C", "n"), ("Mean °C", "n"),
        ("Highest W", "n"), ("Mean W", "n"), ("Memory GiB", "n"), ("Energy kWh", "n"),
    )  # fmt: skip
    used = figures.energy.by_gpu
    rows = [
        (
            _cell(_gpu(figures.machines[place])),
            _cell(_bar(figures.utilisation.mean[place]), "n", is_key=key == "utilisation"),
            _cell(number(figures.idle_share[place] * 100, 0, "%"), "n"),
            _cell(number(temperature.highest[place]), "n", is_key=key == "temperature"),
            _cell(number(temperature.mean[place], 1), "n"),
            _cell(number(power.highest[place]), "n"),
            _cell(number(power.mean[place]), "n"),
            _cell(number(figures.memory.mean[place] / 1024, 1), "n"),
            _cell(number(used[place], 2), "n"),
        )
        for place in places
    ]
    return _table(heads, ["".join(row) for row in rows])


def event_kinds(figures: FleetFigures) -> str:
    counts = Counter((event.kind, event.severity) for event in figures.events)
    kinds = Counter(event.kind for event in figures.events)
    affected = {kind: len({e.uuid for e in figures.events if e.kind == kind}) for kind in kinds}
    heads = (("Kind", ""), *((severity.value, "n") for severity in _BY_WEIGHT), ("GPUs", "n"))
    rows = [
        _cell(escape(kind_name(kind)))
        + "".join(_cell(f"{counts[kind, severity] or NO_VALUE}", "n") for severity in _BY_WEIGHT)
        + _cell(str(affected[kind]), "n")
        for kind, _ in kinds.most_common()
    ]
    return _table(heads, rows)


def events(figures: FleetFigures) -> str:
    """The critical ones first, the latest first among equals."""
    machines = {machine.uuid: machine for machine in (*figures.machines, *figures.unheard)}
    ordered = sorted(figures.events, key=lambda event: _BY_WEIGHT.index(event.severity))
    shown = ordered[:_MOST_EVENTS]
    heads = (
        ("Severity", ""),
        ("Kind", ""),
        ("GPU", ""),
        ("Start", ""),
        ("Lasted", "n"),
        ("What happened", ""),
    )
    table = _table(heads, [_event(event, machines.get(event.uuid)) for event in shown])
    if len(ordered) == len(shown):
        return table
    left = plural(len(ordered) - len(shown), "event")
    return f"{table}\n<p class=faint>{left} more, of the same or a lower severity, are in the store.</p>"


def _event(event: Event, machine: Machine | None) -> str:
    severity = event.severity.value
    subject = machine or Machine(event.uuid, event.hostname, "", "")
    still = ", still open" if event.status.value == "open" else ""
    return "".join(
        (
            _cell(f"<span class='badge {severity}'>{severity}</span>"),
            _cell(escape(kind_name(event.kind)), "t"),
            _cell(_gpu(subject)),
            _cell(moment(event.start), "t"),
            _cell(f"{lasting(event.end - event.start)}{still}", "n"),
            _cell(
                f"{escape(event.message)}<br><span class=evidence>{escape(evidence(event.evidence))}</span>"
            ),
        )
    )


def _gpu(machine: Machine) -> str:
    return f"{escape(machine.name)}<span class=uuid>{escape(machine.uuid)}</span>"


def _bar(percent: float) -> str:
    if np.isnan(percent):
        return NO_VALUE
    return f'<span class=bar aria-hidden=true><i style="width:{percent:.0f}%"></i></span>{percent:.1f} %'


def _cell(html: str, kind: str = "", *, is_key: bool = False) -> str:
    classes = " ".join(part for part in (kind, "key" if is_key else "") if part)
    return f'<td class="{classes}">{html}</td>' if classes else f"<td>{html}</td>"


def _table(heads: tuple[tuple[str, str], ...], rows: list[str]) -> str:
    head = "".join(f'<th scope=col class="{kind}">{escape(text)}</th>' for text, kind in heads)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<div class=wide><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )
