"""The scenarios of the client and the fixture account for every message; nothing here looks at a time."""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_client_and_fixture_are_measured_and_judged(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench", "client", "fixture", "--quick", "--rounds", "1"]
    command += ["--peer", "millstream", "--data", str(tmp_path), "--json", str(report)]

    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    figures = {cell["name"]: cell["values"] for cell in json.loads(report.read_bytes())["figures"]}
    for what in ("client: send_batch of 100 B", "client: poll of 100 B"):
        assert figures[f"{what}, raw confluent-kafka"][0] > 0
        assert figures[f"{what}, millstream.client"][0] > 0
        assert len(figures[f"{what}, time over raw confluent-kafka"]) == 1
    assert 0 < figures["fixture: start to ready"][0] < figures["fixture: start to first message"][0]
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
