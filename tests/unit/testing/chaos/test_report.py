from pathlib import Path

import pytest

from millstream.testing.chaos import report
from millstream.testing.chaos.nemesis import FaultSpan
from millstream.testing.chaos.report import figures, write_report
from millstream.testing.chaos.run import ChaosPlan, ChaosResult
from millstream.testing.history import Anomaly, History, Outcome, Send
from millstream.testing.history.operations import Kind


def result(*anomalies: Anomaly) -> ChaosResult:
    sends = [Send("p", "t-0", f"v{n}", n, n + 0.01, Outcome.OK, n) for n in range(10)]
    return ChaosResult(
        ChaosPlan(seed=7),
        History(sends=sends),
        [(send.end, 0.01) for send in sends],
        [FaultSpan("kill -9", "node 2", 3.0, 5.0)],
        list(anomalies),
        ["3.00 s: <told>"],
        10.0,
    )


def test_the_figures_of_a_run() -> None:
    told = figures(result())
    assert told["acknowledged"] == 10
    assert told["faults"] == 1
    assert told["longest time without an acknowledgement, s"] == 1.0


def test_a_report_says_whether_the_run_passed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "chaos.html"
    assert write_report(result(), path) is None
    page = path.read_text()
    assert "No anomaly." in page
    assert "<svg" in page
    assert "&lt;told&gt;" in page
    write_report(result(Anomaly(Kind.LOST_WRITE, "t-0", "v3")), path)
    assert "1 anomalies." in path.read_text()
    assert "lost write: t-0: v3" in path.read_text()


def test_a_report_without_matplotlib_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(report.NoPictures):
        report.timeline([], [], 1.0)
    missing = write_report(result(), tmp_path / "chaos.html")
    assert missing is not None
    assert "millstream[pipeline]" in missing
    assert "millstream[pipeline]" in (tmp_path / "chaos.html").read_text()
