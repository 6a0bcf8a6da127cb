"""Records of another shape than DCGM's: the declaration of examples/sensors, from bytes to points and dead letters."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.telemetry_records import LOG_TIME, records_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.pipeline.stores.base import Rejected

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sensors" / "pipeline.yaml"


def reading(**changes: object) -> bytes:
    right = {
        "sensor": "roof-3",
        "site": "north",
        "at": "2026-03-01T12:00:00Z",
        "quantity": "temperature",
        "reading": 21.5,
    }
    return json.dumps(
        {name: value for name, value in {**right, **changes}.items() if value is not None}
    ).encode()


class Points:
    """A store that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, float, str, str, datetime]] = []

    def write_points(self, frame: "DataFrame", version: int) -> "Rejected":
        assert version == 7
        names = ("uuid", "metric", "value", "hostname", "model_name", "time")
        self.rows += [tuple(row) for row in frame.select(*names).collect()]
        return ()


def test_sensors_need_no_python(spark: "SparkSession") -> None:
    from millstream.pipeline.declaration import load_declaration
    from millstream.pipeline.job.dataflow import Dataflow
    from millstream.pipeline.job.judge import Limits, typed_fields

    declared = load_declaration(EXAMPLE)
    values = [
        reading(),
        reading(site=None, labels={"site": "south", "model": "T-1"}),
        reading(quantity="humidity", reading="40.5"),
        reading(reading=-999),
        reading(reading=300),
        reading(quantity="pressure"),
        reading(at="noon"),
        reading(sensor=None),
        b"rubbish",
    ]
    letters: list[dict[str, object]] = []
    store = Points()
    dataflow = Dataflow(
        store,  # type: ignore[arg-type]
        Limits(declaration=declared),
        lambda frame: letters.extend(json.loads(row.value) for row in frame.collect()),
    )
    stored = dataflow.process(
        typed_fields(records_frame(spark, enumerate(values), declared), dataflow.limits),
        7,
        LOG_TIME - timedelta(days=9),
    )
    found = sorted(row[:5] for row in store.rows)
    assert found == [
        ("roof-3", "humidity", 40.5, "north", ""),
        ("roof-3", "temperature", 21.5, "north", ""),
        ("roof-3", "temperature", 21.5, "south", "T-1"),
    ]
    assert {letter["offset"]: (letter["reason"], letter["field"]) for letter in letters} == {
        4: ("value_out_of_range", "reading"),
        5: ("unknown_metric", "quantity"),
        6: ("bad_timestamp", "at"),
        7: ("missing_field", "sensor"),
        8: ("malformed_json", ""),
    }
    assert (stored.summary.verdicts["sentinel"], stored.summary.verdicts["valid"], stored.rejected) == (
        1,
        3,
        0,
    )
