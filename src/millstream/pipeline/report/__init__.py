"""The fleet report: one HTML file, made from what a store answers.

    summary = write_report(store, *last_day(store), Path("report.html"))

It asks what the query API asks, so it needs no Spark and works with every store. `figures` adds up rollups, `chart` and
`page` draw them. Must not come in: anything that the file would load from elsewhere when it is opened.
"""

from millstream.pipeline.report.figures import NothingToReport
from millstream.pipeline.report.write import ReportSummary, last_day, write_report

__all__ = ["NothingToReport", "ReportSummary", "last_day", "write_report"]
