"""A short run of `millstream chaos`: everything it does, for a few seconds."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_short_chaos_run_finds_nothing(tmp_path: Path) -> None:
    report = tmp_path / "chaos.html"
    done = subprocess.run(
        [
            sys.executable, "-m", "millstream", "chaos", "--seconds", "10", "--rate", "30", "--seed", "1",
            "--data", str(tmp_path / "data"), "--report", str(report),
        ],
        capture_output=True, check=False, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "anomalies\t0\n" in done.stdout
    assert "Timeline" in report.read_text()
