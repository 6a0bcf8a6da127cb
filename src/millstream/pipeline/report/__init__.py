"""The fleet report: one HTML file, made from a store's answers.

    figures = write_report(store, *last_day(store), Path("report.html"))

It asks the same questions as the query API, so it needs no Spark and works with every store. `figures` sums up rollups,
`page` draws them. The file must not load anything from elsewhere when it is opened.
"""

from millstream.pipeline.report.figures import NothingToReport, last_day
from millstream.pipeline.report.page import write_report

__all__ = ["NothingToReport", "last_day", "write_report"]
