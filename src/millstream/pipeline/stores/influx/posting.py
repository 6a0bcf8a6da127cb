"""What an executor does with rows: build lines, post them by the thousand, find the ones that are refused.

The lines of a batch lie one after the other in one buffer, each with its line feed: a post is a slice of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.pipeline.stores.errors import StoreUnavailable
from millstream.pipeline.stores.influx.connection import InfluxConnection, Refusal
from millstream.pipeline.stores.influx.lines import LineBuilder
from millstream.pipeline.stores.influx.refusals import find_refused
from millstream.pipeline.stores.influx.target import InfluxTarget
from millstream.pipeline.stores.parquet.staging import StagedRows
from millstream.pipeline.stores.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

OUTCOME_DDL = (
    "kind string, source_partition int, source_offset bigint, uuid string, metric string, time_us bigint, "
    "reason string"
)
REFUSED = "refused"
UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Posting:
    """One kind of rows, on their way to one server and into the lake's staging directory."""

    target: InfluxTarget
    table: Table
    build: LineBuilder
    staging: Path | None = None
    """Where rows that the server took are left for the lake; None for rows that go there another way."""

    def run(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """For `mapInArrow`: rows in, only what went wrong out.

        A server that cannot be reached is an outcome like the others, not an exception: the driver then knows it for
        what it is, and Spark does not repeat the task on top of our own retries.
        """
        connection = InfluxConnection(self.target)
        staged = StagedRows(self.staging, self.table) if self.staging is not None else None
        try:
            for batch in batches:
                refused = self._post(connection, batch)
                if refused:
                    yield _refused_rows(batch, refused)
                if staged is not None:
                    staged.add(_without(batch, refused))
            if staged is not None:
                staged.flush()
        except StoreUnavailable as error:
            yield _outcomes([{"kind": UNAVAILABLE, "reason": str(error)}])
        finally:
            connection.close()

    def _post(self, connection: InfluxConnection, batch: "pa.RecordBatch") -> dict[int, str]:
        """The refused rows and why."""
        import pyarrow as pa

        lines = self.build(batch)
        refused = dict(lines.problems)
        text, rows = lines.text, None
        if refused:
            rows = [row for row in range(batch.num_rows) if row not in refused]
            text = text.take(pa.array(rows, pa.int64()))
        points = self.target.post_points
        for first in range(0, len(text), points):
            for number, reason in _post_lines(connection, text.slice(first, points)).items():
                refused[rows[first + number] if rows is not None else first + number] = reason
        return refused


def _post_lines(connection: InfluxConnection, text: "pa.Array") -> dict[int, str]:
    import numpy as np
    import pyarrow as pa

    _, offsets, data = text.buffers()
    width = np.int64 if pa.types.is_large_string(text.type) else np.int32
    starts = np.frombuffer(offsets, width, len(text) + 1, text.offset * width().itemsize)
    buffer = memoryview(data)
    refusal = connection.write(buffer[starts[0] : starts[-1]])
    if refusal is None:
        return {}

    def send(rows: Sequence[int]) -> Refusal | None:
        return connection.write(b"".join(buffer[starts[row] : starts[row + 1]] for row in rows))

    return find_refused(send, text.to_pylist(), refusal)


def _without(batch: "pa.RecordBatch", refused: dict[int, str]) -> "pa.RecordBatch":
    import pyarrow as pa

    if not refused:
        return batch
    return batch.take(pa.array([row for row in range(batch.num_rows) if row not in refused], pa.int64()))


def _refused_rows(batch: "pa.RecordBatch", refused: dict[int, str]) -> "pa.RecordBatch":
    known = [
        name
        for name in ("source_partition", "source_offset", "uuid", "metric", "time")
        if name in batch.schema.names
    ]
    rows: list[dict[str, Any]] = []
    for row in sorted(refused):
        described = {name: batch[name][row] for name in known}
        time = described.pop("time", None)
        rows.append(
            {
                "kind": REFUSED,
                "reason": refused[row],
                **{name: value.as_py() for name, value in described.items()},
                "time_us": time.value if time is not None else None,
            }
        )
    return _outcomes(rows)


def _outcomes(rows: list[dict[str, Any]]) -> "pa.RecordBatch":
    import pyarrow as pa

    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("source_partition", pa.int32()),
            ("source_offset", pa.int64()),
            ("uuid", pa.string()),
            ("metric", pa.string()),
            ("time_us", pa.int64()),
            ("reason", pa.string()),
        ]
    )
    return pa.RecordBatch.from_pylist(rows, schema)
