"""A batch of records in Arrow: the points of the plain ones, and which ones are doubtful."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.pipeline.job.moments import EPOCH, micros
from millstream.pipeline.job.plain.members import MEMBERS, MEMBERS_OF_LABELS, MOST_MEMBERS, SLOTS, Names
from millstream.pipeline.job.plain.record import (
    DOUBTFUL,
    PLAIN_WITH_HARD_NUMBER,
    SPANS,
    TEXT_COLUMNS,
    copy_texts,
    read_records,
)
from millstream.pipeline.job.reasons import Limits
from millstream.pipeline.metrics import METRICS, SENTINEL_RANGES
from millstream.pipeline.stores.tables import POINTS

_VALUE_SPAN = len(TEXT_COLUMNS)
_LONG_AGO = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Sifted:
    points: pa.RecordBatch
    """The columns of a point."""
    times_us: npt.NDArray[np.int64]
    """Of the points."""
    sentinels: int
    doubtful: npt.NDArray[np.int64]
    """Rows of the batch, by number."""


class Sieve:
    """Judges by one moment, so that the same records have the same verdict however often they are read."""

    def __init__(self, limits: Limits, now: datetime) -> None:
        self._now_us = micros(now)
        self._earliest_us = micros(limits.earliest)
        self._ahead_us = limits.max_ahead // timedelta(microseconds=1)
        self._most_bytes = limits.max_record_bytes
        self._names = Names.of(MEMBERS)
        self._label_names = Names.of(MEMBERS_OF_LABELS)
        self._metric_names = Names.of({name: number for number, name in enumerate(METRICS)})
        self._metric_texts = pa.array(list(METRICS), pa.string())
        self._lowest = np.array([metric.minimum for metric in METRICS.values()], np.float64)
        self._highest = np.array([metric.maximum for metric in METRICS.values()], np.float64)
        self._slots = np.zeros((2, SLOTS, 3), np.int64)
        self._hashes = np.zeros((3, MOST_MEMBERS), np.uint64)

    def sift(self, records: pa.RecordBatch) -> Sifted:
        """From rows with the columns `value`, `partition`, `offset` and `timestamp` of a Kafka source."""
        rows = records.num_rows
        offsets, data = _binary(records["value"])
        status, metrics = np.zeros(rows, np.int8), np.zeros(rows, np.int32)
        times_us, values = np.empty(rows, np.int64), np.zeros(rows, np.float64)
        spans = np.zeros((rows, SPANS, 3), np.int32)
        read_records(
            data, offsets, _present(records["value"]), _times(records["timestamp"]), self._now_us, self._earliest_us,
            self._ahead_us, self._most_bytes, self._names, self._label_names, self._metric_names, self._slots,
            self._hashes, status, times_us, values, metrics, spans,
        )  # fmt: skip
        for row in np.nonzero(status == PLAIN_WITH_HARD_NUMBER)[0]:
            _, start, end = spans[row, _VALUE_SPAN]
            values[row] = float(data[start:end].tobytes())
        plain = status != DOUBTFUL
        plausible = plain & (self._lowest[metrics] <= values) & (values <= self._highest[metrics])
        sentinel = plain & ~plausible & _within(values, SENTINEL_RANGES)
        chosen = np.nonzero(plausible)[0]
        points = self._points(records, chosen, data, spans, times_us, values, metrics)
        return Sifted(points, times_us[chosen], int(sentinel.sum()), np.nonzero(~(plausible | sentinel))[0])

    def _points(
        self,
        records: pa.RecordBatch,
        chosen: npt.NDArray[np.int64],
        data: npt.NDArray[np.uint8],
        spans: npt.NDArray[np.int32],
        times_us: npt.NDArray[np.int64],
        values: npt.NDArray[np.float64],
        metrics: npt.NDArray[np.int32],
    ) -> pa.RecordBatch:
        everything = len(chosen) == records.num_rows
        made: dict[str, pa.Array] = {
            "time": pa.array(times_us[chosen], pa.timestamp("us", tz="UTC")),
            "metric": self._metric_texts.take(pa.array(metrics[chosen])),
            "value": pa.array(values[chosen]),
        }
        for name, source in (("source_partition", "partition"), ("source_offset", "offset")):
            made[name] = records[source] if everything else records[source].take(pa.array(chosen))
        for column, name in enumerate(TEXT_COLUMNS):
            made[name] = _texts(data, spans, chosen, column)
        return pa.RecordBatch.from_arrays([made[name] for name in POINTS.names], names=list(POINTS.names))


def _texts(
    data: npt.NDArray[np.uint8], spans: npt.NDArray[np.int32], chosen: npt.NDArray[np.int64], column: int
) -> pa.Array:
    rows = len(chosen)
    offsets = np.empty(rows + 1, np.int32)
    # Escapes and blanks only go; no text is longer than its span.
    size = int((spans[:, column, 2] - spans[:, column, 1]).sum())
    target = np.empty(size, np.uint8)
    copy_texts(data, spans, chosen, column, offsets, target)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(target[: offsets[rows]])]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _binary(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    return starts, np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


def _present(column: pa.Array) -> npt.NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    present: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return present


def _times(column: pa.Array) -> npt.NDArray[np.int64]:
    """Of records without a time a very early one."""
    whole = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    times: npt.NDArray[np.int64] = whole.fill_null(_LONG_AGO).to_numpy(zero_copy_only=False)
    return times


def _within(values: npt.NDArray[np.float64], ranges: Iterable[tuple[float, float]]) -> npt.NDArray[np.bool_]:
    inside = np.zeros(len(values), np.bool_)
    for low, high in ranges:
        inside |= (low <= values) & (values <= high)
    return inside


def load() -> None:
    """Compile the loops, or load them from the cache, before there is anything to read."""
    kinds = {
        "value": pa.binary(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    nothing = {name: pa.array([None], kind) for name, kind in kinds.items()}
    Sieve(Limits(), EPOCH).sift(pa.RecordBatch.from_pydict(nothing))
