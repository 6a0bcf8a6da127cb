"""What an executor does with rows: build lines, post them by the thousand, find the ones that are refused.

The lines of a batch lie one after the other in one buffer, each with its line feed: a post is a slice of it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.pipeline.stores.errors import StoreUnavailable
from millstream.pipeline.stores.influx.connection import InfluxConnection, Refusal
from millstream.pipeline.stores.influx.lines import LineBuilder, Lines
from millstream.pipeline.stores.influx.refusals import find_refused
from millstream.pipeline.stores.influx.target import InfluxTarget
from millstream.pipeline.stores.outcomes import REFUSED, outcomes, unavailable
from millstream.pipeline.stores.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

_BATCHES_UNDER_WAY = 2


@dataclass(frozen=True, slots=True)
class Posting:
    """One kind of rows, on their way to one server."""

    target: InfluxTarget
    table: Table
    build: LineBuilder

    def run(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """For `mapInArrow`: rows in, only what went wrong out."""
        try:
            for batch, refused in self._posted(batches):
                if refused:
                    yield _refused_rows(batch, refused)
        except StoreUnavailable as error:
            yield unavailable(error)

    def _posted(
        self, batches: "Iterator[pa.RecordBatch]"
    ) -> "Iterator[tuple[pa.RecordBatch, dict[int, str]]]":
        """Each batch with its refused rows and why. While one is on its way to the server the next is made.

        One connection and one post at a time: of two points with one identity the later must be written later.
        """
        connection = InfluxConnection(self.target)
        poster = ThreadPoolExecutor(1, "influx-post")
        under_way: deque[tuple[pa.RecordBatch, Future[dict[int, str]]]] = deque()
        try:
            for batch in batches:
                under_way.append((batch, poster.submit(self._post, connection, self.build(batch))))
                if len(under_way) > _BATCHES_UNDER_WAY:
                    first, answer = under_way.popleft()
                    yield first, answer.result()
            for first, answer in under_way:
                yield first, answer.result()
        finally:
            poster.shutdown(cancel_futures=True)
            connection.close()

    def _post(self, connection: InfluxConnection, lines: Lines) -> dict[int, str]:
        """The refused rows and why."""
        import pyarrow as pa

        refused = dict(lines.problems)
        text, rows = lines.text, None
        if refused:
            rows = [row for row in range(len(text)) if row not in refused]
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
    return outcomes(rows)
