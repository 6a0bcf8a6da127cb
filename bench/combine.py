"""Several reports as one: what a later run measured takes the place of the same scenarios in an earlier one."""

from dataclasses import replace

from bench.model import FigureCell, LoadCell, Report, Skipped


def scenarios_of(report: Report) -> list[str]:
    """The scenarios that the report has something about, in the order of its cells."""
    cells: list[LoadCell | FigureCell | Skipped] = [*report.loads, *report.figures, *report.skipped]
    return list(dict.fromkeys(cell.scenario for cell in cells))


def without_repeated(reports: list[Report]) -> list[Report]:
    """The reports from the earliest to the latest, each with only the scenarios that none after it has."""
    kept: list[Report] = []
    seen: set[str] = set()
    for report in sorted(reports, key=lambda each: each.environment.date, reverse=True):
        kept.append(
            replace(
                report,
                loads=[cell for cell in report.loads if cell.scenario not in seen],
                figures=[cell for cell in report.figures if cell.scenario not in seen],
                skipped=[cell for cell in report.skipped if cell.scenario not in seen],
            )
        )
        seen.update(scenarios_of(report))
    return kept[::-1]


def combined(reports: list[Report]) -> Report:
    """All cells of `reports`, whose scenarios differ, in the first one's environment."""
    return replace(
        reports[0],
        seconds=sum(report.seconds for report in reports),
        loads=[cell for report in reports for cell in report.loads],
        figures=[cell for report in reports for cell in report.figures],
        skipped=[cell for report in reports for cell in report.skipped],
    )
