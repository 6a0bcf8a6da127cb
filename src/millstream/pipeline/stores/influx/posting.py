"""What an executor does with lines: post them by the thousand, and find the ones that the server refuses.

The lines of an Arrow batch lie one after the other in one buffer, each with its line feed: a post is a slice of it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.pipeline.stores.base import StoreUnavailable
from millstream.pipeline.stores.influx.connection import InfluxConnection, Refusal
from millstream.pipeline.stores.influx.refusals import find_refused
from millstream.pipeline.stores.influx.target import InfluxTarget

if TYPE_CHECKING:
    import pyarrow as pa

OUTCOME_DDL = (
    "kind string, source_partition int, source_offset bigint, uuid string, metric string, time timestamp, "
    "reason string"
)
REFUSED = "refused"
UNAVAILABLE = "unavailable"

_COLUMNS = ("source_partition", "source_offset", "uuid", "metric", "time")


@dataclass(frozen=True, slots=True)
class _Post:
    """The rows of one request, and how to send any of them."""

    batch: "pa.RecordBatch"
    lines: memoryview
    starts: Sequence[int]
    """Where line i begins in `lines`, and behind the last where it ends."""


def poster(target: InfluxTarget) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """For `mapInArrow`: lines in, only what went wrong out.

    A server that cannot be reached is an outcome like the others, not an exception: the driver then knows it for what
    it is, and Spark does not repeat the task on top of our own retries.
    """

    def post(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        connection = InfluxConnection(target)
        try:
            for batch in batches:
                yield from _post_batch(connection, batch)
        except StoreUnavailable as error:
            yield _outcomes([UNAVAILABLE], {name: [None] for name in _COLUMNS}, [str(error)])
        finally:
            connection.close()

    return post


def _post_batch(connection: InfluxConnection, batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    import pyarrow.compute as pc

    unwritable = batch.filter(pc.is_valid(batch["problem"]))
    if unwritable.num_rows:
        yield _refused_rows(unwritable, unwritable["problem"].to_pylist())
        batch = batch.filter(pc.is_null(batch["problem"]))
    points = connection.target.post_points
    for start in range(0, batch.num_rows, points):
        yield from _post_lines(connection, _cut(batch.slice(start, points)))


def _cut(batch: "pa.RecordBatch") -> _Post:
    import numpy as np
    import pyarrow as pa

    lines = batch["line"]
    _, offsets, data = lines.buffers()
    width = np.int64 if pa.types.is_large_string(lines.type) else np.int32
    starts = np.frombuffer(offsets, width, len(lines) + 1, lines.offset * width().itemsize)
    return _Post(batch, memoryview(data), starts.tolist())


def _post_lines(connection: InfluxConnection, post: _Post) -> "Iterator[pa.RecordBatch]":
    refusal = connection.write(post.lines[post.starts[0] : post.starts[-1]])
    if refusal is None:
        return

    def send(rows: Sequence[int]) -> Refusal | None:
        return connection.write(b"".join(post.lines[post.starts[row] : post.starts[row + 1]] for row in rows))

    metrics: list[str] = post.batch["metric"].to_pylist()
    times: list[Any] = post.batch["time"].to_pylist()
    refused = find_refused(send, metrics, times, refusal)
    if refused:
        rows = sorted(refused)
        yield _refused_rows(post.batch.take(rows), [refused[row] for row in rows])


def _refused_rows(batch: "pa.RecordBatch", reasons: list[str]) -> "pa.RecordBatch":
    columns = {name: batch[name] for name in _COLUMNS}
    return _outcomes([REFUSED] * batch.num_rows, columns, reasons)


def _outcomes(kinds: list[str], columns: dict[str, Any], reasons: list[str]) -> "pa.RecordBatch":
    import pyarrow as pa

    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("source_partition", pa.int32()),
            ("source_offset", pa.int64()),
            ("uuid", pa.string()),
            ("metric", pa.string()),
            ("time", pa.timestamp("us", tz="UTC")),
            ("reason", pa.string()),
        ]
    )
    return pa.RecordBatch.from_pydict({"kind": kinds, **columns, "reason": reasons}, schema=schema)
