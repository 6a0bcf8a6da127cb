"""What an executor does with rows: build lines, post them by the thousand, find the ones that are refused.

The lines of a batch lie one after the other in one buffer, each with its line feed: a post is a slice of it.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.pipeline.stores.base import StoreUnavailable
from millstream.pipeline.stores.influx.connection import InfluxConnection, InfluxTarget, Refusal
from millstream.pipeline.stores.influx.lines import LineBuilder, Lines
from millstream.pipeline.stores.rows import Table

if TYPE_CHECKING:
    import pyarrow as pa

_BATCHES_UNDER_WAY = 2
OUTCOME_DDL = (
    "source_partition int, source_offset bigint, uuid string, metric string, time_us bigint, reason string, "
    "unavailable boolean"
)


@dataclass(frozen=True, slots=True)
class Posting:
    """One kind of rows, on their way to one server."""

    target: InfluxTarget
    table: Table
    build: LineBuilder

    def run(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """For `mapInArrow`: rows in, only what went wrong out.

        A server that cannot be reached is an outcome like the others, not an exception: the driver then knows it for
        what it is, and Spark does not repeat the task on top of our own retries.
        """
        import pyarrow as pa

        try:
            for batch, refused in self._posted(batches):
                if refused:
                    rows = sorted(refused)
                    yield _outcomes(batch.take(pa.array(rows)), [refused[row] for row in rows])
        except StoreUnavailable as error:
            yield _outcomes(None, [str(error)])

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


def _outcomes(batch: "pa.RecordBatch | None", reasons: Sequence[str]) -> "pa.RecordBatch":
    """A row for each reason, with what is known of the rows of `batch`; without one the server is unavailable."""
    import pyarrow as pa

    # An executor has no Spark session that could read the DDL.
    types = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}
    columns_ddl = (column.split() for column in OUTCOME_DDL.split(", "))
    schema = pa.schema([(name, types[kind]) for name, kind in columns_ddl])
    columns = {"reason": pa.array(reasons), "unavailable": pa.repeat(batch is None, len(reasons))}
    if batch is not None:
        sources = {name: name.removesuffix("_us") for name in schema.names}
        known = {name: source for name, source in sources.items() if source in batch.schema.names}
        columns |= {name: batch[source].cast(schema.field(name).type) for name, source in known.items()}
    nothing = {field.name: pa.nulls(len(reasons), field.type) for field in schema}
    return pa.RecordBatch.from_pydict(nothing | columns, schema)


Send = Callable[[Sequence[int]], Refusal | None]

_DROPPED = re.compile(r"dropped=(\d+)")
_MEASUREMENT = re.compile(r"(?:\\.|[^\\, ])*", re.DOTALL)
_TOO_LARGE = 413


def find_refused(send: Send, lines: Sequence[str], refusal: Refusal) -> dict[int, str]:
    """The refused lines, by their number, and why; all others are stored when this returns."""
    by_measurement: dict[str, list[int]] = {}
    for row in sorted(range(len(lines)), key=lambda row: _time(lines[row])):
        match = _MEASUREMENT.match(lines[row])
        by_measurement.setdefault(match[0] if match is not None else "", []).append(row)
    if len(by_measurement) == 1:
        return _narrow(send, next(iter(by_measurement.values())), refusal)
    refused: dict[int, str] = {}
    for rows in by_measurement.values():
        answer = send(rows)
        if answer is not None:
            refused |= _narrow(send, rows, answer)
    return refused


def _time(line: str) -> int:
    stamp = line.rsplit(" ", 1)[-1].strip()
    return int(stamp) if stamp.lstrip("-").isdecimal() else 0


def _narrow(send: Send, rows: Sequence[int], refusal: Refusal) -> dict[int, str]:
    """`rows` have just been refused, in whole or in part."""
    if len(rows) == 1 or _dropped(refusal) == len(rows):
        return dict.fromkeys(rows, refusal.reason)
    refused: dict[int, str] = {}
    middle = len(rows) // 2
    for half in (rows[:middle], rows[middle:]):
        answer = send(half)
        if answer is not None:
            refused |= _narrow(send, half, answer)
    return refused


def _dropped(refusal: Refusal) -> int:
    """How many lines the server says it left out; it says 0 of lines that it could not read."""
    if refusal.status == _TOO_LARGE:
        return 0
    match = _DROPPED.search(refusal.reason)
    return int(match[1]) if match is not None else 0
