"""Records read from their bytes: whatever they hold, each gives rows, and none ends the reading."""

import json

import pyarrow as pa
import pytest

from millstream.pipeline.declaration import DCGM
from millstream.pipeline.job.judge import Limits
from millstream.pipeline.job.text import TextReader
from support.telemetry import right_record


@pytest.mark.parametrize("field", ["labels_raw", "timestamp", "value", "uuid", "other"])
def test_a_record_of_any_depth_gives_a_row(field: str) -> None:
    reader = TextReader(DCGM, Limits().max_record_bytes, pa.schema([]))
    beginning = json.dumps({name: value for name, value in right_record().items() if name != field})[:-1]
    for depth in range(500, 1100):
        nested = f'{beginning}, "{field}": {"[" * depth}{"]" * depth}}}'.encode()
        [row] = reader.rows_of([b"key", nested, "telemetry", 0, 7], 0)
        assert row[:5] == (b"key", nested, "telemetry", 0, 7)
