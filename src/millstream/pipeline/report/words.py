"""Numbers, names and findings in words."""

import math
from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import orjson

from millstream.pipeline.report.model import IDLE_BELOW, EnergySource, FleetFigures
from millstream.pipeline.stores.rows import Severity

NO_VALUE = "–"


def number(value: float, digits: int = 0, unit: str = "") -> str:
    if math.isnan(value):
        return NO_VALUE
    return f"{value:,.{digits}f}{' ' if unit else ''}{unit}"


def moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def lasting(time: timedelta) -> str:
    minutes = max(0, round(time.total_seconds() / 60))
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if not minutes and hours < 48:
        return f"{hours} h"
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def kind_name(kind: str) -> str:
    """`xid_burst` as a person would write it."""
    return kind.replace("_", " ").replace("xid", "XID").replace("gpu", "GPU")


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def evidence(text: str) -> str:
    """The JSON of an event's evidence as `peak celsius 96, minutes 12`."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    if not isinstance(found, dict):
        return text
    return ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in found.items())


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def findings(figures: FleetFigures) -> list[str]:
    """What someone who reads nothing else should know, the worst first."""
    return [text for text in (_events(figures), _hottest(figures), _idle(figures), _unheard(figures)) if text]


def _events(figures: FleetFigures) -> str:
    critical = [event for event in figures.events if event.severity is Severity.CRITICAL]
    if not critical:
        return "No critical events." if figures.events else "No health events."
    kinds = Counter(kind_name(event.kind) for event in critical)
    which = ", ".join(f"{count}\u00a0×\u00a0{kind}" for kind, count in kinds.most_common())
    gpus = len({event.uuid for event in critical})
    return f"{plural(len(critical), 'critical event')} on {plural(gpus, 'GPU')}: {which}."


def _hottest(figures: FleetFigures) -> str:
    if figures.temperature.is_empty:
        return ""
    place = int(np.nanargmax(figures.temperature.highest))
    return (
        f"The hottest GPU was {figures.machines[place].name}, which reached "
        f"{figures.temperature.highest[place]:.0f} °C."
    )


def _idle(figures: FleetFigures) -> str:
    idle = figures.utilisation.mean < IDLE_BELOW
    count = int(idle.sum())
    if not count:
        return ""
    used = float(figures.energy.by_gpu[idle].sum())
    share = f" ({used / figures.energy.total:.0%} of all)" if figures.energy.total else ""
    return (
        f"{plural(count, 'GPU')} of {len(figures.machines):,} did next to nothing (below {IDLE_BELOW:.0f} % on "
        f"average) and used {used:,.1f} kWh{share}."
    )


def _unheard(figures: FleetFigures) -> str:
    if not figures.unheard:
        return ""
    hosts = sorted({machine.hostname for machine in figures.unheard})
    named = ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
    return (
        f"{plural(len(figures.unheard), 'GPU')} that the store knows sent nothing in this time (on {named})."
    )


def energy_method(figures: FleetFigures) -> str:
    used = figures.energy
    counted, integrated, without = (used.measured_by(source) for source in EnergySource)
    parts = []
    if counted:
        resets = f", {plural(used.resets, 'reset')} taken into account" if used.resets else ""
        parts.append(f"from the energy counter of {plural(counted, 'GPU')}{resets}")
    if integrated:
        parts.append(f"from power over time for {plural(integrated, 'GPU')} without a usable counter")
    if without:
        parts.append(f"unknown for {plural(without, 'GPU')}")
    return "; ".join(parts)
