"""The fleet report from an InfluxDB store: the same as from Parquet files with the same rows."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millstream.pipeline.stores.influx.connection import parse_target
from millstream.pipeline.stores.influx.lines import LineBuilder, event_lines, point_lines, rollup_lines
from millstream.pipeline.stores.influx.posting import Posting
from millstream.pipeline.stores.rows import EVENTS, POINTS, ROLLUPS, Table
from support import fleet_api
from support.influx import InfluxProcess, influxd_path
from support.store_rows import Row

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.skipif(
    influxd_path() is None, reason="influxd is not installed (Debian package influxdb)"
)


@pytest.mark.long
def test_the_same_report_as_from_parquet(tmp_path: Path) -> None:
    fleet_api.fill(tmp_path, now := datetime.now(UTC))
    server = InfluxProcess(tmp_path / "influx").start()
    try:
        server.query("CREATE DATABASE telemetry")
        target = parse_target(server.url, {"db": "telemetry"}, "", is_v2=False)
        tables: list[tuple[Table, LineBuilder, list[Row]]] = [
            (POINTS, point_lines, list(fleet_api.points(now))),
            (ROLLUPS, rollup_lines, list(fleet_api.rollups(now))),
            (EVENTS, event_lines, list(fleet_api.events(now))),
        ]
        for table, build, rows in tables:
            taken = Posting(target, table, build).taken(iter([pa.RecordBatch.from_pylist(rows)]))
            assert [told for _, told in taken if told is not None] == []
        from_influx = report(tmp_path, f"influx:{server.url}?db=telemetry", now)
        empty = run_report(tmp_path, f"influx:{server.url}?db=nothing", now)
    finally:
        server.stop()

    assert from_influx == report(tmp_path, f"parquet:{tmp_path}/store", now)
    assert "Hottest GPUs" in from_influx
    assert empty.returncode == 1
    assert "the store is empty; run the pipeline first" in empty.stderr
    gone = run_report(tmp_path, f"influx:{server.url}?db=telemetry", now)
    assert gone.returncode != 0
    assert "is it running" in gone.stderr
    assert "Traceback" not in gone.stderr


def report(directory: Path, store: str, now: datetime) -> str:
    """The page without the time at which it was made."""
    done = run_report(directory, store, now)
    assert done.returncode == 0, done.stderr
    text = (directory / "report.html").read_text()
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC", "", text)


def run_report(directory: Path, store: str, now: datetime) -> "subprocess.CompletedProcess[str]":
    start = (now - timedelta(hours=1)).isoformat()
    return subprocess.run(
        [sys.executable, "-m", "millstream", "pipeline", "report", "--from", start, "--to", now.isoformat(),
         "--store", store, "--data", str(directory), "--output", str(directory / "report.html")],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
