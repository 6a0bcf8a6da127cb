"""Where a streamer's points come from, and when each is due: a CSV file in a loop or as it was, or a fleet.

A source is a lazy stream of bursts. What is due is decided by the start and the numbers alone, so a streamer that was
held up, by a broker that was down for example, catches up and leaves nothing out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, islice
from pathlib import Path

from millstream.client import ProducerRecord
from millstream.pipeline.dcgm_csv import BadRow, CsvError, read_dcgm_csv
from millstream.pipeline.fleet.telemetry import Fleet
from millstream.pipeline.record import RecordForm, TelemetryRecord
from millstream.pipeline.share import Share
from millstream.runtime.clock import Clock, SystemClock

# A slower stream is sent point by point, a faster one in bursts of this long.
_BURST_S = 0.02
_UNPACED_BURST = 500
_SYSTEM_CLOCK = SystemClock()


class Timestamps(StrEnum):
    """Which time a row of a CSV file gets: its own, or that of sending."""

    ORIGINAL = "original"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Burst:
    """Points that go out together, `due_s` after the stream began; `time_ms` is the time of the last of them."""

    due_s: float
    time_ms: int
    records: list[ProducerRecord]


@dataclass(frozen=True, slots=True)
class CsvSource:
    """A CSV file, `loops` times over (None: without end), for one share of its GPUs."""

    path: Path
    topic: str
    form: RecordForm
    share: Share
    timestamps: Timestamps
    loops: int | None
    on_bad_row: BadRow
    clock: Clock = _SYSTEM_CLOCK

    def at_rate(self, rate: float | None) -> Iterator[Burst]:
        """At so many points a second, or as fast as they are taken."""
        start_ms = self.clock.now_ms()
        size = _UNPACED_BURST if rate is None else max(1, int(rate * _BURST_S))
        series = _SeriesClock()
        sent = 0
        for _ in self._passes():
            for batch in _batches(self._records(), size):
                due_s = 0.0 if rate is None else sent / rate
                moment_ms = self.clock.now_ms() if rate is None else start_ms + int(due_s * 1000)
                yield self._burst(due_s, moment_ms, batch, series)
                sent += len(batch)

    def as_it_was(self, speed: float) -> Iterator[Burst]:
        """With the pauses between the rows' times, divided by `speed`.

        A row older than one before it is due with that one. A second lies between two passes.
        """
        start_ms = self.clock.now_ms()
        series = _SeriesClock()
        passed_s = 0.0
        for _ in self._passes():
            due_s = passed_s
            first_ms: int | None = None
            for record in self._records():
                first_ms = record.time_ms if first_ms is None else first_ms
                own_s = passed_s + (record.time_ms - first_ms) / 1000 / speed
                due_s = max(due_s, own_s)
                yield self._burst(due_s, start_ms + int(own_s * 1000), [record], series)
            passed_s = due_s + 1 / speed

    def _passes(self) -> Iterable[int]:
        return count() if self.loops is None else range(self.loops)

    def _records(self) -> Iterator[TelemetryRecord]:
        found = mine = False
        for record in read_dcgm_csv(self.path, self.on_bad_row):
            found = True
            if self.share.holds(record.uuid):
                mine = True
                yield record
        if not found:
            raise CsvError(f"{self.path}: no row of it can be used")
        if not mine:
            instance = f"{self.share.number}/{self.share.total}"
            raise CsvError(f"{self.path}: none of its GPUs belongs to instance {instance}")

    def _burst(
        self, due_s: float, moment_ms: int, batch: Iterable[TelemetryRecord], series: "_SeriesClock"
    ) -> Burst:
        topic, form = self.topic, self.form
        is_moved = self.timestamps is Timestamps.NOW
        records = []
        time_ms = moment_ms
        for record in batch:
            time_ms = series.moved(record, moment_ms) if is_moved else record.time_ms
            records.append(ProducerRecord(topic, record.to_json(form, time_ms=time_ms), record.uuid))
        return Burst(due_s, time_ms, records)


class _SeriesClock:
    """Moves records to another time, no two of a series to the same one: the second would replace the first."""

    def __init__(self) -> None:
        self._last_ms: dict[tuple[str, str], int] = {}

    def moved(self, record: TelemetryRecord, moment_ms: int) -> int:
        series = (record.uuid, record.metric_name)
        last_ms = self._last_ms.get(series, 0)
        time_ms = self._last_ms[series] = moment_ms if moment_ms > last_ms else last_ms + 1
        return time_ms


def fleet_bursts(
    fleet: Fleet,
    topic: str,
    start_ms: int,
    end_ms: int | None = None,
    *,
    rate: float | None = None,
    clock: Clock = _SYSTEM_CLOCK,
) -> Iterator[Burst]:
    """The reports of a fleet from `start_ms` up to `end_ms`, or without end.

    Those of the past are due at so many points a second, or at once; the others when their time has come.
    """
    began_ms = clock.now_ms()
    sent = 0
    for report in fleet.reports(start_ms, end_ms):
        due_s = 0.0 if rate is None else sent / rate
        uuid = report.uuid
        records = [ProducerRecord(topic, value, uuid) for value in report.records]
        yield Burst(max(due_s, (report.time_ms - began_ms) / 1000), report.time_ms, records)
        sent += len(records)


def _batches(records: Iterator[TelemetryRecord], size: int) -> Iterator[list[TelemetryRecord]]:
    while batch := list(islice(records, size)):
        yield batch
