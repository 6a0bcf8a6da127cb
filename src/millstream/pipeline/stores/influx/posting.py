"""Posts rows from an executor: builds lines, posts them by the thousand, and finds the refused ones.

The lines of a batch are consecutive in one buffer, each with its line feed, so a post is a slice of the buffer.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.pipeline.stores.base import StoreUnavailable
from millstream.pipeline.stores.influx.connection import InfluxConnection, InfluxTarget, Refusal
from millstream.pipeline.stores.influx.lines import LineBuilder, Lines
from millstream.pipeline.stores.parquet.frames import report
from millstream.pipeline.stores.rows import POINTS, Table

_BATCHES_UNDER_WAY = 2
_TOLD = ("source_partition", "source_offset", "uuid", "metric")


@dataclass(frozen=True, slots=True)
class Posting:
    """Posts rows of one table to one server."""

    target: InfluxTarget
    table: Table
    build: LineBuilder

    def taken(
        self, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch | None]]:
        """The rows that the server has accepted, and a report of those that it refused.

        An unreachable server is reported too instead of raising an exception: so the driver recognises the failure, and
        Spark does not repeat the task on top of our own retries. Rollups and events are passed on even if refused: they
        can be computed again, and have no original record that a dead letter could carry.
        """
        try:
            for batch, refused in self._posted(batches):
                if not refused:
                    yield batch, None
                    continue
                bad = batch.take(pa.array(sorted(refused)))
                columns = {name: bad[name] for name in _TOLD if name in batch.schema.names}
                if self.table == POINTS:
                    columns["time_us"] = bad["time"].cast(pa.int64())
                    batch = batch.filter(pa.array([row not in refused for row in range(batch.num_rows)]))
                yield batch, report({"reason": [refused[row] for row in sorted(refused)], **columns})
        except StoreUnavailable as error:
            yield None, report({"reason": [str(error)], "unavailable": [True]})

    def _posted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, dict[int, str]]]:
        """Each batch with its refused rows and the reasons. Lines of the next batch are built while one is posted.

        Posts one at a time over one connection: of two points with the same identity, the later must be written last.
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
        """The refused rows, with the reasons."""
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


def _post_lines(connection: InfluxConnection, text: pa.Array) -> dict[int, str]:
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


Send = Callable[[Sequence[int]], Refusal | None]

_DROPPED = re.compile(r"dropped=(\d+)")
_MEASUREMENT = re.compile(r"(?:\\.|[^\\, ])*", re.DOTALL)
_TOO_LARGE = 413


def find_refused(send: Send, lines: Sequence[str], refusal: Refusal) -> dict[int, str]:
    """The reasons for refused lines, by line number; all other lines are stored when this returns."""
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
    """Finds the refused ones among `rows`, which were just refused in whole or in part, by halving."""
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
    """The number of lines that the server reports as dropped; it reports 0 for lines that it could not parse."""
    if refusal.status == _TOO_LARGE:
        return 0
    match = _DROPPED.search(refusal.reason)
    return int(match[1]) if match is not None else 0
