"""`write_report`: from a store to a file."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millstream.pipeline.report.figures import NothingToReport, Progress, last_moment, read_figures
from millstream.pipeline.report.page import page
from millstream.pipeline.stores.base import StoreReader
from millstream.pipeline.stores.rows import Severity

_DAY = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class ReportSummary:
    path: Path
    start: datetime
    end: datetime
    hosts: int
    gpus: int
    points: int
    mean_utilisation: float | None
    """Percent; None when no GPU reported it."""
    energy_kwh: float
    events: Mapping[Severity, int]


def last_day(store: StoreReader) -> tuple[datetime, datetime]:
    """The 24 hours that end with the newest point's minute; NothingToReport when there is no point."""
    newest = last_moment(store)
    if newest is None:
        raise NothingToReport("the store is empty; run the pipeline first")
    end = newest.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return end - _DAY, end


def write_report(
    store: StoreReader, start: datetime, end: datetime, output_path: Path, progress: Progress | None = None
) -> ReportSummary:
    """A report about the minutes that [start, end] touches, in one file that replaces what was there.

    NothingToReport when the store holds nothing for them; the file is then left as it was.
    """
    say: Progress = progress if progress is not None else (lambda _: None)
    figures = read_figures(store, start, end, say)
    say("drawing")
    _replace(output_path, page(figures, datetime.now(UTC)))
    say("")
    return ReportSummary(
        path=output_path,
        start=figures.start,
        end=figures.end,
        hosts=len(figures.hosts),
        gpus=len(figures.gpus),
        points=figures.points,
        mean_utilisation=figures.mean_utilisation,
        energy_kwh=figures.energy_kwh,
        events={severity: figures.count(severity) for severity in Severity},
    )


def _replace(path: Path, text: str) -> None:
    """Whoever opens the file sees the old report or the new one, never a part."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
