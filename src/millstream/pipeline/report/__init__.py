"""The fleet report: one HTML file, made from what a store answers.

    figures = write_report(store, *last_day(store), Path("report.html"))

It asks what the query API asks, so it needs no Spark and works with every store. `figures` adds up rollups, `page`
draws them. Must not come in: anything that the file would load from elsewhere when it is opened.
"""

from millstream.pipeline.report.figures import NothingToReport, last_day
from millstream.pipeline.report.page import write_report

__all__ = ["NothingToReport", "last_day", "write_report"]
