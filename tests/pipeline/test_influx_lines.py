"""Line protocol as the real server understands it: whatever a tag holds comes back, or is refused by name."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.pipeline.stores.base import EventQuery, RollupQuery, TelemetryQuery
from millstream.pipeline.stores.influx.connection import InfluxTarget, parse_target
from millstream.pipeline.stores.influx.lines import event_lines, point_lines, rollup_lines
from millstream.pipeline.stores.influx.posting import Posting
from millstream.pipeline.stores.influx.queries import InfluxQl, InfluxQueries
from millstream.pipeline.stores.rows import EVENTS, POINTS, ROLLUPS, Resolution
from support.influx import InfluxProcess, influxd_path
from support.store_rows import at, event, point, rollup

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.skipif(
    influxd_path() is None, reason="influxd is not installed (Debian package influxdb)"
)

LETTERS = [",", "=", " ", "\\", '"', "'", "a", "é", "😀", "\t", "#", "{", "\r", "\x7f", "0", "/"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxTarget]:
    server = InfluxProcess(tmp_path_factory.mktemp("influx"))
    try:
        server.start().query("CREATE DATABASE lines")
        yield parse_target(server.url, {"db": "lines"}, "", is_v2=False)
    finally:
        server.stop()


def odd_text(dice: random.Random) -> str:
    return "".join(dice.choices(LETTERS, k=dice.randrange(1, 12)))


def post(posting: Posting, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist(rows)
    reports = [told for _, told in posting.taken(iter([batch])) if told is not None]
    return [row for told in reports for row in told.to_pylist()]


def test_any_text_comes_back_or_is_refused(target: InfluxTarget) -> None:
    dice = random.Random(7)
    columns = ("gpu_id", "device", "model_name", "hostname", "container", "pod", "namespace", "labels_raw")
    rows = [
        point(
            i,
            "GPU-odd",
            value=dice.uniform(-1e9, 1e9),
            source_offset=i,
            **{name: odd_text(dice) for name in columns},
        )
        for i in range(400)
    ]
    refused = post(Posting(target, POINTS, point_lines), rows)
    unwritable = {i for i, row in enumerate(rows) if any(row[name].endswith("\\") for name in columns)}
    assert {row["source_offset"] for row in refused} == unwritable
    assert 50 < len(unwritable) < 350
    server = InfluxQl(target)
    found = InfluxQueries(server).telemetry(TelemetryQuery("GPU-odd", at(0), at(1000), limit=1000)).rows
    server.close()
    written = [row for i, row in enumerate(rows) if i not in unwritable]
    assert [(p.time, p.value, *(getattr(p, name) for name in columns)) for p in found] == [
        (row["time"], row["value"], *(row[name] for name in columns)) for row in written
    ]


def test_numbers_come_back_exactly(target: InfluxTarget) -> None:
    values = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -2.5, 123456789.0, 1e15, 1e16, 2**53 + 2.0]
    assert (
        post(Posting(target, POINTS, point_lines), [point(i, "GPU-n", value=v) for i, v in enumerate(values)])
        == []
    )
    server = InfluxQl(target)
    assert [
        p.value for p in InfluxQueries(server).telemetry(TelemetryQuery("GPU-n", at(0), at(100))).rows
    ] == values
    server.close()


def test_rollups_and_events_with_odd_text(target: InfluxTarget) -> None:
    dice = random.Random(8)
    texts = [odd_text(dice) + "." for _ in range(50)]
    rollups = [rollup(i, key=text, hostname=text) for i, text in enumerate(texts)]
    assert post(Posting(target, ROLLUPS, rollup_lines), rollups) == []
    events = [
        event(i, f"e{i:02}", message=text + "\n\\", evidence=text, hostname=text)
        for i, text in enumerate(texts)
    ]
    assert post(Posting(target, EVENTS, event_lines), events) == []
    (refused,) = post(Posting(target, EVENTS, event_lines), [event(0, "bad\\")])
    assert (refused["unavailable"], refused["reason"].endswith("event_id")) == (None, True)
    server = InfluxQl(target)
    asked = InfluxQueries(server)
    assert [r.key for r in asked.rollups(RollupQuery(Resolution.MINUTE)).rows] == texts
    found = asked.events(EventQuery(limit=100)).rows
    assert [(e.message, e.evidence, e.hostname) for e in found[::-1]] == [(t + "\n\\", t, t) for t in texts]
    assert [e.event_id for e in asked.events(EventQuery(hostname=texts[3])).rows] == [
        f"e{i:02}" for i in range(49, -1, -1) if texts[i] == texts[3]
    ]
    server.close()
