"""How a report is judged and drawn, on made-up numbers."""

from dataclasses import replace

from bench.goals import Verdict, judge
from bench.model import Environment, FigureCell, LoadCell, LoadResult, Peer, Report, Sample
from bench.ratio import throughput_ratio
from bench.render import markdown
from bench.scenarios import names


def _report() -> Report:
    machine = Environment("2026-01-01", "a CPU", 2, 8.0, "Linux", "3.11", "ext4", "native driver", 0.0)
    return Report(machine, quick=True)


def _cell(name: str, peer: Peer, *rates: int) -> LoadCell:
    samples = tuple(
        Sample(LoadResult(rate, rate * 1_000, 1.0, 0, rate, 0.5), broker_cpu_seconds=0.5, broker_rss_bytes=1)
        for rate in rates
    )
    return LoadCell("ratio", name, peer, samples)


def test_ratio_compares_round_with_round() -> None:
    ours = _cell("load", Peer.MILLSTREAM, 100, 400, 90)
    reference = _cell("load", Peer.MOCK, 100, 800, 100)

    ratio = throughput_ratio(ours, reference)

    assert (ratio.low, ratio.median, ratio.high) == (0.5, 0.9, 1.0)


def test_goals_hold_are_missed_or_were_not_measured() -> None:
    report = _report()
    fast, slow = names.ratio_name(100, copied=False), names.ratio_name(1_000, copied=False)
    report.loads += [_cell(fast, Peer.MOCK, 100), _cell(fast, Peer.MILLSTREAM, 95)]
    report.loads += [_cell(slow, Peer.MOCK, 100), _cell(slow, Peer.MILLSTREAM, 84)]

    verdicts = {row.figure: row.verdict for row in judge(report)}

    against = "not copied: throughput against the mock cluster"
    assert verdicts[f"produce 100 B, 4 partitions, relaxed, {against}"] is Verdict.HOLDS
    assert verdicts[f"produce 1 KB, 4 partitions, relaxed, {against}"] is Verdict.MISSED
    assert verdicts["idle resident memory"] is Verdict.NOT_MEASURED


def test_figure_goal_takes_the_worst_of_its_cells() -> None:
    report = _report()
    report.figures.append(FigureCell("memory", names.IDLE_MEMORY_AT_START, "MB", (70.0,)))
    report.figures.append(FigureCell("memory", names.IDLE_MEMORY_LATER, "MB", (81.0,)))

    judged = next(row for row in judge(report) if row.figure == "idle resident memory")

    assert (judged.measured, judged.verdict) == ("81.00 MB", Verdict.MISSED)


def test_markdown_has_the_machine_and_only_tables_with_rows() -> None:
    page = markdown([_report()])

    assert "2 cores (a CPU)" in page
    assert "### Goals" in page
    assert "### Throughput" not in page


def test_a_page_of_several_reports_has_each_scenario_from_the_latest() -> None:
    earlier, later = _report(), _report()
    later.environment = replace(later.environment, date="2026-01-02")
    earlier.figures.append(FigureCell("memory", names.IDLE_MEMORY_AT_START, "MB", (70.0,)))
    earlier.figures.append(FigureCell("start", "start: a thing", "s", (2.0,)))
    later.figures.append(FigureCell("memory", names.IDLE_MEMORY_AT_START, "MB", (50.0,)))

    page = markdown([later, earlier])

    assert "Measured start: 2026-01-01" in page
    assert "Measured memory: 2026-01-02" in page
    assert "50.00 MB" in page
    assert "70.00 MB" not in page
    assert "start: a thing" in page
