"""Writes reports: JSON on disk, tables on a terminal, Markdown for the documentation."""

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table as RichTable

from bench.combine import combined, scenarios_of, without_repeated
from bench.model import Report
from bench.tables import Table, all_tables

_PROSE_COLUMNS = frozenset({"figure", "load", "what", "why"})
_BEGIN, _END = "<!-- results: begin -->", "<!-- results: end -->"


def save(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))


def load(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def newest(directory: Path) -> Path | None:
    return max(directory.glob("*.json"), default=None)


def print_tables(report: Report, console: Console) -> None:
    for table in all_tables(report):
        drawn = RichTable(title=table.title, title_justify="left")
        for column in table.columns:
            drawn.add_column(column, overflow="fold", no_wrap=column not in _PROSE_COLUMNS)
        for row in table.rows:
            drawn.add_row(*row)
        console.print(drawn)


def markdown(reports: list[Report]) -> str:
    """One page of all reports; who reads it is told which run each scenario's figures are from."""
    runs = without_repeated(reports)
    lines = [line for run in runs for line in (_heading(run, is_one_of_several=len(runs) > 1), "")]
    for table in all_tables(combined(runs)):
        lines += [f"### {table.title}", "", *_markdown_rows(table), ""]
    return "\n".join(lines)


def _heading(report: Report, *, is_one_of_several: bool) -> str:
    machine = report.environment
    mode = "quick run, for a look only" if report.quick else "full run"
    what = f" {', '.join(scenarios_of(report))}:" if is_one_of_several else ""
    return (
        f"Measured{what} {machine.date} ({mode}, {report.seconds / 60:.0f} min) on {machine.cores} cores "
        f"({machine.cpu}), {machine.memory_gb:g} GB, {machine.system}, Python {machine.python}, data on "
        f"{machine.file_system}; {machine.driver}; load average at the start {machine.load_average:.2f}."
    )


def _markdown_rows(table: Table) -> list[str]:
    rows = [table.columns, tuple("---" for _ in table.columns), *table.rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]


def update_page(reports: list[Report], page: Path) -> None:
    """Replaces what stands between the page's two markers."""
    before, begin, rest = page.read_text().partition(_BEGIN)
    _old, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page} needs the lines {_BEGIN} and {_END}")
    page.write_text(f"{before}{_BEGIN}\n\n{markdown(reports)}\n{_END}{after}")
