"""A report as tables, for a terminal and for a Markdown page alike."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.goals import judge
from bench.model import LoadCell, Peer, Report, Sample
from bench.ratio import throughput_ratio


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def all_tables(report: Report) -> list[Table]:
    tables = (_goals(report), _throughput(report), _latency(report), _figures(report), _skipped(report))
    return [table for table in tables if table.rows]


def _goals(report: Report) -> Table:
    rows = tuple((row.figure, row.goal, row.measured, row.verdict.value) for row in judge(report))
    return Table("Goals", ("figure", "goal", "measured", "holds"), rows)


def _throughput(report: Report) -> Table:
    columns = (
        "load",
        "peer",
        "msg/s",
        "lowest to highest",
        "MB/s",
        "of the mock",
        "broker CPU s/GB",
        "broker CPU s/million",
        "client CPU s/GB",
        "RSS MB",
    )
    return Table("Throughput, medians", columns, tuple(_throughput_rows(report)))


def _throughput_rows(report: Report) -> Iterator[tuple[str, ...]]:
    for cell in report.loads:
        if cell.samples[0].load.latency_ms is not None:
            continue
        rates = [sample.messages_per_second for sample in cell.samples]
        yield (
            cell.name,
            cell.peer.value,
            f"{median(rates):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            f"{_median(cell, lambda sample: sample.mb_per_second):,.0f}",
            _of_the_mock(report, cell),
            f"{_median(cell, lambda sample: sample.cpu_seconds_per_gb):.2f}",
            f"{_median(cell, lambda sample: sample.cpu_seconds_per_million):.2f}",
            f"{_median(cell, lambda sample: sample.load.client_cpu_seconds / sample.load.bytes * 1e9):.2f}",
            f"{_median(cell, lambda sample: sample.broker_rss_bytes / 1e6):.0f}",
        )


def _of_the_mock(report: Report, cell: LoadCell) -> str:
    reference = report.load(cell.name, Peer.MOCK)
    if cell.peer is Peer.MOCK or reference is None:
        return ""
    return str(throughput_ratio(cell, reference))


def _latency(report: Report) -> Table:
    rows = []
    for cell in report.loads:
        latencies = [sample.load.latency_ms for sample in cell.samples if sample.load.latency_ms is not None]
        if latencies:
            columns: Sequence[list[float]] = (
                [latency.p50 for latency in latencies],
                [latency.p90 for latency in latencies],
                [latency.p99 for latency in latencies],
                [latency.p999 for latency in latencies],
                [latency.max for latency in latencies],
            )
            rows.append((cell.name, cell.peer.value, *(f"{median(column):.2f}" for column in columns)))
    return Table(
        "Latency in ms, medians", ("load", "peer", "p50", "p90", "p99", "p99.9", "highest"), tuple(rows)
    )


def _figures(report: Report) -> Table:
    rows = tuple(
        (cell.name, f"{cell.median:.2f} {cell.unit}", f"{min(cell.values):.2f} to {max(cell.values):.2f}")
        for cell in report.figures
    )
    return Table("Times and memory", ("figure", "median", "lowest to highest"), rows)


def _skipped(report: Report) -> Table:
    rows = tuple(
        (cell.scenario, cell.name, "failed" if cell.failed else "skipped", cell.reason)
        for cell in report.skipped
    )
    return Table("Not measured", ("scenario", "what", "how", "why"), rows)


def _median(cell: LoadCell, of: Callable[[Sample], float]) -> float:
    return median(of(sample) for sample in cell.samples)
