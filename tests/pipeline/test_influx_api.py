"""The query API over an InfluxDB store, without Spark; and what it says when the server has gone."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from millstream.pipeline.stores.influx.connection import parse_target
from millstream.pipeline.stores.influx.lines import event_lines, point_lines, rollup_lines
from millstream.pipeline.stores.influx.posting import Posting
from millstream.pipeline.stores.influx.queries import InfluxQl, InfluxQueries
from millstream.pipeline.stores.rows import EVENTS, POINTS, ROLLUPS
from support.api_server import running_api
from support.influx import InfluxProcess, influxd_path
from support.store_rows import UTIL, event, point, rollup

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.skipif(
    influxd_path() is None, reason="influxd is not installed (Debian package influxdb)"
)


def test_the_same_answers_as_from_parquet_and_503_without_a_server(tmp_path: Path) -> None:
    server = InfluxProcess(tmp_path / "influx")
    made = parse_target(server.url, {"db": "telemetry"}, "", is_v2=False)
    target = replace(made, retry_for=timedelta(seconds=0.2))
    reader = InfluxQl(target)
    try:
        server.start()
        with running_api(InfluxQueries(reader)) as api:
            assert api.get("/api/v1/gpus").json["count"] == 0, "a database that is not there yet is empty"
            server.query("CREATE DATABASE telemetry")
            for table, build, rows in (
                (POINTS, point_lines, [point(i, f"GPU-{g}", value=i) for i in range(5) for g in (1, 2)]),
                (ROLLUPS, rollup_lines, [rollup(60 * i) for i in range(3)]),
                (EVENTS, event_lines, [event(0, "a"), event(60, "b", severity="critical")]),
            ):
                taken = Posting(target, table, build).taken(iter([pa.RecordBatch.from_pylist(rows)]))
                assert [told for _, told in taken if told is not None] == []
            assert [gpu["uuid"] for gpu in api.get("/api/v1/gpus").json["gpus"]] == ["GPU-1", "GPU-2"]
            times = "start_time=2026-03-01T12:00:01Z&end_time=2026-03-01T12:00:03Z"
            found = api.get(f"/api/v1/gpus/GPU-2/telemetry?{times}").json
            assert [row["value"] for row in found["data"]] == [1.0, 2.0, 3.0]
            assert api.get(f"/api/v1/gpus/GPU-3/telemetry?{times}").status == 404
            assert api.get("/api/v1/metrics").json["metrics"][0] == {
                "name": UTIL, "unit": "%", "kind": "gauge", "points": 10,
            }  # fmt: skip
            assert api.get("/api/v1/rollups?level=gpu&key=GPU-1").json["count"] == 3
            assert [e["event_id"] for e in api.get("/api/v1/events?severity=critical").json["events"]] == [
                "b"
            ]
            assert api.get("/api/v1/latest?hostname=host-1").json["count"] == 2
            quoted = api.get("/api/v1/latest?metric=%22%27%5C%3B%20DROP%20DATABASE%20telemetry")
            assert (quoted.status, quoted.json["count"]) == (200, 0)
            server.kill()
            gone = api.get("/api/v1/gpus")
            assert (gone.status, "is it running" in gone.error) == (503, True)
            assert api.get("/health").status == 200
            server.start()
            assert api.get("/api/v1/gpus").json["count"] == 2
    finally:
        reader.close()
        server.stop()
