import json
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the `pipeline` extra is not installed")

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.ledger import Ledger, Summary
from millstream.pipeline.job.status import LogPosition, Status


def test_lag_and_rows_are_known_while_a_batch_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "ledger.json", timedelta(minutes=10))
    position = LogPosition(PipelineSettings(bootstrap="127.0.0.1:1"), tmp_path)
    status = Status(tmp_path / "status.json", ledger, position, {"topic": "telemetry"})
    assert status.document()["rows_per_second"] == 0
    monkeypatch.setattr(position, "lag", lambda done: {("telemetry", 0): 30, ("telemetry", 1): 12})
    monkeypatch.setattr(position, "size_of", lambda batch: 40)
    status.look()
    ledger.record(0, Summary({"valid": 90, "bad": 10}), lost=7)
    shown = status.document()
    assert (shown["lag"], shown["under_way_rows"], shown["batch_rows"]) == (42, 40, 100)
    assert shown["rows_per_second"] > 0
    assert shown["counts"]["lost"] == 7
    monkeypatch.setattr(position, "lag", lambda done: None)
    status.look()
    assert status.document()["lag"] == 42, "what the cluster does not say stays as it was"


def test_sizes_of_batches_come_from_sparks_log_of_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for batch, (first, second) in enumerate(((10, 20), (15, 22))):
        document = json.dumps({"telemetry": {"0": first, "1": second}})
        (offsets / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{document}')
    position = LogPosition(PipelineSettings(bootstrap="127.0.0.1:1"), tmp_path)
    assert position.end_of(1) == {("telemetry", 0): 15, ("telemetry", 1): 22}
    assert (position.size_of(1), position.size_of(0), position.size_of(2)) == (7, None, None)
    assert position.lost_before(7) == 0
    assert [position.goes_back(batch) for batch in (0, 1, 2)] == [False, False, False]
    (offsets / "2").write_text('v1\n{"batchWatermarkMs":0}\n{"telemetry": {"0": 0, "1": 0}}')
    assert position.goes_back(2)
    # Retention has deleted up to offset 13 of one partition, and more than the batch holds of the other.
    monkeypatch.setattr(position, "_ask", lambda _: {("telemetry", 0): 13, ("telemetry", 1): 90})
    assert position.lost_before(1) == 3 + 2
    assert position.lag(1) == {("telemetry", 0): 0, ("telemetry", 1): 68}
    position.close()
