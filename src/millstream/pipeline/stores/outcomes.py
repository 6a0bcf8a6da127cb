"""What executors report of points that they were given to store: only what went wrong.

A store that cannot be reached is an outcome like the others, not an exception: the driver then knows it for what it is,
and Spark does not repeat the task on top of our own retries.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.pipeline.moments import moment
from millstream.pipeline.stores.base import Rejected, RejectedPoint
from millstream.pipeline.stores.errors import StoreUnavailable

if TYPE_CHECKING:
    import pyarrow as pa

OUTCOME_DDL = (
    "kind string, source_partition int, source_offset bigint, uuid string, metric string, time_us bigint, "
    "reason string"
)
REFUSED = "refused"
UNAVAILABLE = "unavailable"


def outcomes(rows: list[dict[str, Any]]) -> "pa.RecordBatch":
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


def unavailable(error: Exception) -> "pa.RecordBatch":
    return outcomes([{"kind": UNAVAILABLE, "reason": str(error)}])


def check_available(rows: Iterable[Mapping[str, Any]]) -> None:
    """Raises StoreUnavailable if that is among the outcomes."""
    for row in rows:
        if row["kind"] == UNAVAILABLE:
            raise StoreUnavailable(row["reason"])


def rejected_of(rows: Iterable[Mapping[str, Any]]) -> Rejected:
    return Rejected(
        tuple(
            RejectedPoint(
                row["source_partition"], row["source_offset"], row["uuid"], row["metric"], moment(row["time_us"]),
                row["reason"],
            )
            for row in rows
            if row["kind"] == REFUSED
        )
    )  # fmt: skip
