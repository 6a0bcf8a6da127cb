"""The drawings of a report."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from millstream.pipeline.report import svg
from millstream.pipeline.report.model import Bins, FleetFigures, Floats
from millstream.pipeline.report.words import kind_name
from millstream.pipeline.stores.rows import Severity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_GPU_ROWS = 96
_MOST_HOST_BARS = 20
_SEVERITY_COLOURS = {
    Severity.INFO: svg.INFO,
    Severity.WARNING: svg.WARNING,
    Severity.CRITICAL: svg.CRITICAL,
}


def heat_map(figures: FleetFigures) -> str:
    """Utilisation: time to the right, GPUs (or hosts, of a large fleet) downwards."""
    by_host = len(figures.machines) > MOST_GPU_ROWS
    rows = by_hosts(figures, figures.utilisation.by_bin) if by_host else figures.utilisation.by_bin
    what = "host" if by_host else "GPU"
    with svg.drawing("heat-map"):
        height = min(12.0, max(1.2, len(rows) * (0.16 if by_host else 0.075)))
        whole = height + 0.55
        figure = _figure(whole)
        axes = figure.add_axes((0.115, 0.26 / whole, 0.885, height / whole))
        edges = figures.bins.edges_s
        axes.imshow(
            rows, aspect="auto", interpolation="none", cmap="viridis", vmin=0, vmax=100,
            extent=(edges[0], edges[-1], len(rows), 0),
        )  # fmt: skip
        axes.grid(False)
        _time_axis(axes, figures.bins, figures)
        _name_rows(axes, figures, by_host=by_host)
        _scale(figure, whole)
        return svg.inline(
            figure,
            f"Utilisation of each {what} over time",
            f"Heat map with a row for each of {len(rows)} {what}s. Mean utilisation is "
            f"{figures.mean_utilisation:.0f} %. Blank cells are times without data.",
        )


def by_hosts(figures: FleetFigures, values: Floats) -> Floats:
    """The mean of the GPUs of each host, in the order of `figures.hosts`."""
    names = np.array([machine.hostname for machine in figures.machines])
    return np.stack([_mean(values[names == host]) for host in figures.hosts])


def over_time(figures: FleetFigures) -> str:
    with svg.drawing("over-time"):
        figure = _figure(5.9)
        panels = figure.subplots(3, 1, sharex=True, gridspec_kw={"hspace": 0.42})
        figure.subplots_adjust(left=0.05, right=1, top=0.96, bottom=0.06)
        middle_s = figures.bins.edges_s[:-1] + figures.bins.width_s / 2
        utilisation = figures.utilisation.by_bin
        _band(panels[0], middle_s, utilisation, svg.BLUE)
        panels[0].set_title("Utilisation, %")
        panels[0].set_ylim(0, 100)
        temperature = figures.temperature
        _band(panels[1], middle_s, temperature.by_bin, svg.ORANGE)
        hottest = _most(temperature.highest_by_bin)
        panels[1].plot(middle_s, hottest, color=svg.CRITICAL, linewidth=0.9, label="hottest GPU")
        panels[1].set_title("Temperature, °C")
        kilowatts = _total(figures.power.by_bin) / 1000
        panels[2].plot(middle_s, kilowatts, color=svg.VIOLET, label="all GPUs")
        panels[2].fill_between(middle_s, 0, kilowatts, color=svg.VIOLET, alpha=0.12, linewidth=0)
        panels[2].set_title("Power, kW")
        panels[2].set_ylim(bottom=0)
        for panel in panels:
            _time_axis(panel, figures.bins, figures)
            if panel.get_legend_handles_labels()[0]:
                panel.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=3, borderaxespad=0)
        return svg.inline(
            figure,
            "Utilisation, temperature and power over time",
            f"Mean utilisation {figures.mean_utilisation:.0f} %; highest temperature {_peak(hottest):.0f} degrees; "
            f"highest power of all GPUs together {_peak(kilowatts):.1f} kW.",
        )


def energy(figures: FleetFigures) -> str:
    """Over time, and by host."""
    by_gpu = figures.energy.by_gpu
    names = np.array([machine.hostname for machine in figures.machines])
    by_host = sorted(((float(by_gpu[names == host].sum()), host) for host in figures.hosts), reverse=True)
    shown = by_host[:_MOST_HOST_BARS]
    height = max(2.6, 0.5 + 0.2 * len(shown))
    with svg.drawing("energy"):
        figure = _figure(height)
        panels = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1.7, 1), "wspace": 0.32})
        top = 1 - 0.28 / height
        figure.subplots_adjust(left=0.05, right=0.97, top=top, bottom=0.36 / height)
        bins = figures.bins
        panels[0].bar(
            bins.edges_s[:-1],
            figures.energy.by_bin.sum(axis=0),
            bins.width_s * 0.86,
            align="edge",
            color=svg.GREEN,
        )
        panels[0].set_title(f"kWh in each {_width_name(bins.width_s)}")
        _time_axis(panels[0], bins, figures, most_ticks=8)
        places = np.arange(len(shown))
        panels[1].barh(places, [kwh for kwh, _ in shown], height=0.68, color=svg.GREEN)
        panels[1].set_yticks(places, [host for _, host in shown])
        panels[1].invert_yaxis()
        panels[1].grid(visible=False, axis="y")
        for place, (kwh, _) in enumerate(shown):
            panels[1].annotate(
                f"{kwh:,.1f}", (kwh, place), (3, 0), textcoords="offset points", va="center", fontsize=8,
                color=svg.FAINT,
            )  # fmt: skip
        rest = f", the first {len(shown)} of {len(by_host)}" if len(by_host) > len(shown) else ""
        panels[1].set_title(f"kWh by host{rest}")
        return svg.inline(
            figure,
            "Energy over time and by host",
            f"{figures.energy.total:.1f} kWh in all; {by_host[0][1]} used most with {by_host[0][0]:.1f} kWh.",
        )


def events(figures: FleetFigures) -> str:
    """When each kind of event was on."""
    kinds = sorted({event.kind for event in figures.events})
    with svg.drawing("events"):
        height = 0.55 + 0.34 * len(kinds)
        figure = _figure(height)
        axes = figure.add_axes((0.15, 0.36 / height, 0.85, 1 - 0.4 / height))
        start_s, end_s = figures.start.timestamp(), figures.end.timestamp()
        least_s = (end_s - start_s) / 300
        for severity in Severity:
            for event in figures.events:
                if event.severity is severity:
                    from_s = max(event.start.timestamp(), start_s)
                    lasts_s = max(min(event.end.timestamp(), end_s) - from_s, least_s)
                    axes.broken_barh(
                        [(from_s, lasts_s)], (kinds.index(event.kind) - 0.3, 0.6), alpha=0.75,
                        color=_SEVERITY_COLOURS[severity], linewidth=0,
                    )  # fmt: skip
        axes.set_yticks(range(len(kinds)), [kind_name(kind) for kind in kinds])
        axes.set_ylim(len(kinds) - 0.45, -0.55)
        _time_axis(axes, figures.bins, figures)
        return svg.inline(
            figure,
            "Events over time",
            f"{len(figures.events)} events of {len(kinds)} kinds; the table below has each of them.",
        )


def _figure(height_inches: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(svg.WIDTH_INCHES, height_inches))


def _band(axes: "Axes", middle_s: Floats, by_gpu: Floats, colour: str) -> None:
    """The mean of all GPUs, and where the middle eight of ten are."""
    seen = ~np.isnan(by_gpu).all(axis=0)
    low, high = (np.full(len(middle_s), np.nan) for _ in range(2))
    if seen.any():
        low[seen], high[seen] = np.nanpercentile(by_gpu[:, seen], (10, 90), axis=0)
    axes.fill_between(
        middle_s, low, high, color=colour, alpha=0.18, linewidth=0, label="10th to 90th percentile"
    )
    axes.plot(middle_s, _mean(by_gpu), color=colour, label="mean of all GPUs")


def _mean(values: Floats) -> Floats:
    counts = (~np.isnan(values)).sum(axis=0)
    out = np.full(values.shape[1], np.nan)
    np.divide(np.nansum(values, axis=0), counts, out=out, where=counts > 0)
    return out


def _most(values: Floats) -> Floats:
    most: Floats = np.where(np.isnan(values), -np.inf, values).max(axis=0, initial=-np.inf)
    return np.where(np.isinf(most), np.nan, most)


def _total(values: Floats) -> Floats:
    total: Floats = np.nansum(values, axis=0)
    return np.where(np.isnan(values).all(axis=0), np.nan, total)


def _peak(values: Floats) -> float:
    seen = values[~np.isnan(values)]
    return float(seen.max()) if len(seen) else np.nan


def _time_axis(axes: "Axes", bins: Bins, figures: FleetFigures, most_ticks: int = 12) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter

    ticks = _ticks(figures.start.timestamp(), figures.end.timestamp(), most_ticks)
    shows_days = len(ticks) < 2 or ticks[1] - ticks[0] >= 86_400
    axes.set_xlim(bins.edges_s[0], bins.edges_s[-1])
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time_s, _: _tick_name(time_s, shows_days=shows_days)))
    axes.tick_params(axis="x", length=3)


def _ticks(start_s: float, end_s: float, most: int) -> Sequence[float]:
    steps = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
    step = next((step for step in steps if (end_s - start_s) / step <= most), 30 * 86_400)
    first = -(-start_s // step) * step
    return [float(tick) for tick in np.arange(first, end_s + 1, step)]


def _tick_name(time_s: float, *, shows_days: bool) -> str:
    moment = datetime.fromtimestamp(time_s, UTC)
    if shows_days or (moment.hour, moment.minute) == (0, 0):
        return f"{moment.day} {moment:%b}"
    return f"{moment:%H:%M}"


def _name_rows(axes: "Axes", figures: FleetFigures, *, by_host: bool) -> None:
    hosts = figures.hosts
    names = [machine.hostname for machine in figures.machines]
    starts = np.arange(len(hosts)) if by_host else np.array([names.index(host) for host in hosts])
    ends = np.append(starts[1:], len(hosts) if by_host else len(names))
    every = -(-len(hosts) // 60)
    axes.set_yticks(((starts + ends) / 2)[::every], hosts[::every])
    if not by_host:
        for start in starts[1:]:
            axes.axhline(start, color=svg.SURFACE, linewidth=1.2)


def _scale(figure: "Figure", height_inches: float) -> None:
    middle = 1 - 0.1 / height_inches
    axes = figure.add_axes((0.79, middle - 0.05 / height_inches, 0.16, 0.1 / height_inches))
    axes.imshow(np.linspace(0, 100, 64).reshape(1, -1), aspect="auto", cmap="viridis", interpolation="none")
    axes.axis("off")
    for place, text, side in ((0.78, "utilisation   0 %", "right"), (1.0, "100 %", "right")):
        figure.text(place, middle, text, ha=side, va="center", fontsize=8.5, color=svg.FAINT)


def _width_name(width_s: float) -> str:
    minutes = round(width_s / 60)
    if minutes % 1440 == 0:
        return "day" if minutes == 1440 else f"{minutes // 1440} days"
    if minutes % 60 == 0:
        return "hour" if minutes == 60 else f"{minutes // 60} hours"
    return "minute" if minutes == 1 else f"{minutes} minutes"
