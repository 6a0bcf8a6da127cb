"""The 2.x dialect of the InfluxDB store. See `support.influx2` for what of the server is real."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from millstream.pipeline.moments import micros
from millstream.pipeline.stores.base import StoreUnavailable, TelemetryQuery
from millstream.pipeline.stores.influx.connection import InfluxConnection, InfluxTarget, parse_target
from millstream.pipeline.stores.influx.lines import Lines
from millstream.pipeline.stores.influx.posting import Posting
from millstream.pipeline.stores.influx.queries import InfluxQl, InfluxQueries
from millstream.pipeline.stores.rows import POINTS
from support.influx import InfluxProcess, influxd_path
from support.influx2 import BUCKET, ORGANISATION, TOKEN, Influx2, influx2_in_front_of
from support.store_rows import UTIL, at, point

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.skipif(
    influxd_path() is None, reason="influxd is not installed (Debian package influxdb)"
)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influx2]:
    behind = InfluxProcess(tmp_path_factory.mktemp("influx2"))
    try:
        with influx2_in_front_of(behind.start()) as made:
            yield made
    finally:
        behind.stop()


def target(server: Influx2, bucket: str = BUCKET, token: str = TOKEN, gzip: bool = True) -> InfluxTarget:
    options = {"org": ORGANISATION, "bucket": bucket, "gzip": str(gzip).lower()}
    made = parse_target(server.url, options, token, is_v2=True)
    return replace(made, retry_for=timedelta(seconds=90), post_points=7)


def line(seconds: int, value: str = "1") -> str:
    return f"{UTIL},Hostname=h,uuid=GPU-1 value={value} {micros(at(seconds))}"


def given_lines(batch: Any) -> Lines:
    """The test writes its lines itself, so that it can write wrong ones."""
    return Lines(batch["labels_raw"], {})


def outcomes(made: InfluxTarget, lines: list[str]) -> list[dict[str, Any]]:
    rows = [point(i, labels_raw=each + "\n", source_offset=i) for i, each in enumerate(lines)]
    posting = Posting(made, POINTS, given_lines)
    reports = [
        told for _, told in posting.taken(iter([pa.RecordBatch.from_pylist(rows)])) if told is not None
    ]
    return [row for told in reports for row in told.to_pylist()]


@pytest.mark.parametrize("gzip", [True, False])
def test_points_are_written_and_read_back(server: Influx2, gzip: bool) -> None:
    made = target(server, gzip=gzip)
    assert outcomes(made, [line(i, str(i)) for i in range(20)]) == []
    assert server.encodings == ["gzip" if gzip else None] * 3
    asked = InfluxQl(made)
    found = InfluxQueries(asked).telemetry(TelemetryQuery("GPU-1", at(0), at(100))).rows
    asked.close()
    assert [(p.time, p.value, p.hostname) for p in found] == [(at(i), float(i), "h") for i in range(20)]


def test_a_conflict_of_types_is_found_line_by_line(server: Influx2) -> None:
    lines = [line(i, "1i" if i in (3, 17) else "1") for i in range(20)]
    assert outcomes(target(server), [line(100)]) == []
    refused = outcomes(target(server), lines)
    assert [row["source_offset"] for row in refused] == [3, 17]
    assert all("field type conflict" in row["reason"] for row in refused)
    (series,) = server.behind.query(f'SELECT count(value) FROM "{UTIL}"', BUCKET)
    assert series["values"][0][1] == 19


def test_lines_that_cannot_be_read_are_refused_one_by_one(server: Influx2) -> None:
    refused = outcomes(target(server), [line(0), "not a line", line(2)])
    assert [(row["unavailable"], row["source_offset"]) for row in refused] == [(None, 1)]


def test_a_busy_server_is_asked_again(server: Influx2) -> None:
    server.busy_answers = 2
    assert outcomes(target(server), [line(0)]) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"token": "wrong"}, "401 unauthorized access"),
        ({"bucket": "nowhere"}, '404 bucket "nowhere" not found'),
    ],
)
def test_wrong_credentials_and_names_are_said_at_once(
    server: Influx2, changes: dict[str, str], reason: str
) -> None:
    connection = InfluxConnection(target(server, **changes))
    with pytest.raises(StoreUnavailable, match=reason):
        connection.write(line(0).encode())
    connection.close()
    (row,) = outcomes(target(server, **changes), [line(0)])
    assert (row["unavailable"], reason in row["reason"]) == (True, True)
