"""The fleet report: one HTML file with plots, made from what a store holds.

    summary = write_report(store, *last_day(store), Path("report.html"))

It reads through the store's reading side, so it needs no Spark and works with every store: rollups for the figures,
points only where a counter was reset. `windows`, `energy` and `fleet` turn rows into arrays, `plots` and `page` arrays
into SVG and HTML. May come in: numpy and matplotlib. Must not: anything that the file would load from elsewhere when it
is opened.
"""

from millstream.pipeline.report.model import NothingToReport, ReportSummary
from millstream.pipeline.report.write import last_day, write_report

__all__ = ["NothingToReport", "ReportSummary", "last_day", "write_report"]
