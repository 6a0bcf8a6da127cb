"""Figures as inline SVG that takes its colours from the page, so that one drawing serves light and dark."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that occur in no drawing by themselves: each stands for a variable of the page's style sheet.
TEXT, FAINT, GRID = "#000101", "#000102", "#000103"
BLUE, ORANGE, GREEN, VIOLET = "#000201", "#000202", "#000203", "#000204"
CRITICAL, WARNING, INFO = "#000301", "#000302", "#000303"
SURFACE = "#000401"

_VARIABLES = {
    TEXT: "text", FAINT: "faint", GRID: "grid", BLUE: "blue", ORANGE: "orange", GREEN: "green", VIOLET: "violet",
    CRITICAL: "critical", WARNING: "warning", INFO: "info", SURFACE: "surface",
}  # fmt: skip
_COLOUR = re.compile("|".join(_VARIABLES))
_OPENING = re.compile(r"<svg[^>]*>")
_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)
_VIEW_BOX = re.compile(r'viewBox="([^"]*)"')

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": TEXT,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "axes.titlecolor": TEXT,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GRID,
    "xtick.labelcolor": FAINT,
    "ytick.color": GRID,
    "ytick.labelcolor": FAINT,
    "ytick.major.size": 0,
    "lines.linewidth": 1.4,
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.labelcolor": FAINT,
    "legend.fontsize": 8.5,
}

WIDTH_INCHES = 10.2


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """matplotlib with our style; `name` keeps the ids of several drawings in one page apart."""
    import matplotlib as mpl

    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        yield


def inline(figure: "Figure", title: str, description: str) -> str:
    """The figure as an element for a page, with its title and description for those who do not see it."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    drawn = text.getvalue()
    body = _METADATA.sub("", drawn[drawn.index("<svg") :])
    view_box = _VIEW_BOX.search(body)
    opening = (
        f'<svg viewBox="{view_box[1] if view_box else ""}" role="img" xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    )
    return _COLOUR.sub(lambda found: f"var(--{_VARIABLES[found[0]]})", _OPENING.sub(opening, body, count=1))
