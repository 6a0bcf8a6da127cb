"""What executors do with the records of a micro-batch: store the points of the plain ones, put the doubtful ones aside,
and report what there was. One Spark job, without a shuffle."""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.pipeline.job.moments import MINUTE_US, minute_of, moment
from millstream.pipeline.job.ranges import MOST_TASKS, RECORD_COLUMNS, holds_ranges, read_ranges
from millstream.pipeline.job.reasons import Limits, Verdict
from millstream.pipeline.job.summary import Summary
from millstream.pipeline.stores.outcomes import OUTCOME_DDL, PointsIntake, check_available, rejected_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

    from millstream.pipeline.stores.base import Rejected

_REPORT_DDL = f"{OUTCOME_DDL}, minute bigint, rows bigint"
_MINUTE = "minute"


@dataclass(frozen=True, slots=True)
class StoreTask:
    intake: PointsIntake
    limits: Limits
    now: datetime
    aside: Path
    """A directory for the doubtful records, as Parquet files."""

    def over(self, batch: "DataFrame") -> "Report":
        """Do it with all records of a frame with records or ranges. Raises StoreUnavailable."""
        if holds_ranges(batch):
            done = batch.mapInArrow(self.run_ranges, _REPORT_DDL)
        else:
            tasks = min(batch.sparkSession.sparkContext.defaultParallelism, MOST_TASKS)
            done = batch.select(*RECORD_COLUMNS).coalesce(tasks).mapInArrow(self.run, _REPORT_DDL)
        rows = [row.asDict() for row in done.collect()]
        check_available(rows)
        return Report(rows)

    def run_ranges(self, ranges: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return self.run(read_ranges(ranges))

    def run(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """For `mapInArrow`."""
        found = _Found()
        for outcome in self.intake.run(self._points(batches, found)):
            yield _reported(outcome.to_pylist())
        yield _reported(found.rows())

    def _points(self, batches: "Iterator[pa.RecordBatch]", found: "_Found") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        from millstream.pipeline.job.plain.sift import Sieve

        sieve = Sieve(self.limits, self.now)
        aside = _Aside(self.aside)
        for batch in batches:
            sifted = sieve.sift(batch)
            found.add(sifted.times_us, sifted.sentinels, len(sifted.doubtful))
            if len(sifted.doubtful):
                aside.add(batch.take(pa.array(sifted.doubtful)))
            if sifted.points.num_rows:
                yield sifted.points
        aside.close()


@dataclass(frozen=True, slots=True)
class Report:
    rows: Sequence[Mapping[str, Any]]

    @property
    def rejected(self) -> "Rejected":
        return rejected_of(self.rows)

    def summary(self, watermark: datetime | None) -> Summary:
        by_minute: Counter[int] = Counter()
        newest: list[int] = []
        verdicts: Counter[str] = Counter()
        for row in self.rows:
            if row["kind"] == _MINUTE:
                by_minute[row["minute"]] += row["rows"]
                newest.append(row["time_us"])
            elif row["kind"] in set(Verdict):
                verdicts[row["kind"]] += row["rows"]
        over = None if watermark is None else minute_of(watermark)
        return Summary(
            verdicts=verdicts + Counter({str(Verdict.VALID): sum(by_minute.values())}),
            late=sum(count for minute, count in by_minute.items() if over is not None and minute < over),
            minutes=frozenset(by_minute),
            newest=moment(max(newest)) if newest else None,
        )


@dataclass(slots=True)
class _Found:
    """What a task has seen so far."""

    by_minute: Counter[int] = field(default_factory=Counter)
    newest_us: dict[int, int] = field(default_factory=dict)
    sentinels: int = 0
    doubtful: int = 0

    def add(self, times_us: Any, sentinels: int, doubtful: int) -> None:
        import numpy as np

        self.sentinels += sentinels
        self.doubtful += doubtful
        minutes, counts = np.unique(times_us // MINUTE_US, return_counts=True)
        for minute, count in zip(minutes.tolist(), counts.tolist(), strict=True):
            self.by_minute[minute] += count
        if len(minutes):
            last, newest_us = int(minutes[-1]), int(times_us.max())
            self.newest_us[last] = max(self.newest_us.get(last, newest_us), newest_us)

    def rows(self) -> list[dict[str, Any]]:
        counts = ((Verdict.SENTINEL, self.sentinels), (Verdict.DOUBTFUL, self.doubtful))
        return [
            {
                "kind": _MINUTE,
                "minute": minute,
                "rows": rows,
                "time_us": self.newest_us.get(minute, minute * MINUTE_US),
            }
            for minute, rows in self.by_minute.items()
        ] + [{"kind": str(verdict), "rows": rows} for verdict, rows in counts if rows]


class _Aside:
    """One file of a task, begun when there is something to put into it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"{secrets.token_hex(8)}.parquet"
        self._writer: pq.ParquetWriter | None = None

    def add(self, records: "pa.RecordBatch") -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema(
            [
                ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
                ("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")),
            ]
        )  # fmt: skip
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
        columns = [records[each.name].cast(each.type) for each in schema]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _reported(rows: Iterable[dict[str, Any]]) -> "pa.RecordBatch":
    import pyarrow as pa

    schema = pa.schema(
        [
            ("kind", pa.string()), ("source_partition", pa.int32()), ("source_offset", pa.int64()),
            ("uuid", pa.string()), ("metric", pa.string()), ("time_us", pa.int64()), ("reason", pa.string()),
            ("minute", pa.int64()), ("rows", pa.int64()),
        ]
    )  # fmt: skip
    return pa.RecordBatch.from_pylist(list(rows), schema)
