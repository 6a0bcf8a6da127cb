"""The sources of a streamer's points, with due times: a DCGM export, in a loop or replayed, or a simulated fleet.

A source is a lazy stream of bursts. Due times depend only on the start and the numbers, so a streamer that was delayed,
for example by a broker that was down, catches up and leaves nothing out. A file is read row by row.
"""

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import count, islice
from operator import itemgetter
from pathlib import Path

from millstream.client import ProducerRecord
from millstream.pipeline.fleet import Fleet, Share
from millstream.pipeline.record import RecordForm, TelemetryRecord, parse_time_ms
from millstream.runtime.clock import Clock, SystemClock

REQUIRED_COLUMNS = ("timestamp", "metric_name", "gpu_id", "device", "uuid", "modelName", "Hostname", "value")
OPTIONAL_COLUMNS = ("container", "pod", "namespace", "labels_raw")
# dcgm-exporter writes `hostname` from version 4 on.
_OTHER_SPELLINGS = {"hostname": "Hostname"}

# A slower stream is sent point by point, a faster one in bursts of this long.
_BURST_S = 0.02
_UNPACED_BURST = 500
_SYSTEM_CLOCK = SystemClock()

BadRow = Callable[[str], object]
"""Called with the error of an unusable row: `dcgm.csv:17: value 'hot' is not a number`."""


class CsvError(ValueError):
    """The file as a whole is not a DCGM export; the message names the file and what it lacks."""


def check_header(path: Path) -> None:
    """Raise the errors that `read_dcgm_csv` would raise before its first record."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        _places(path, next(csv.reader(file), []))


def read_dcgm_csv(path: Path, on_bad_row: BadRow) -> Iterator[TelemetryRecord]:
    """The records of a file. Unusable rows are left out and reported to `on_bad_row`.

    Raises CsvError when columns are missing and OSError when the file cannot be opened.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        pick = itemgetter(*_places(path, header))
        while True:
            try:
                row = next(rows, None)
                if row is None:
                    return
                if row and len(row) != len(header):
                    raise ValueError(f"{len(row)} columns where the header has {len(header)}")
                if row:
                    yield _record(pick([*row, ""]))
            except (ValueError, csv.Error) as error:
                on_bad_row(f"{path}:{rows.line_num}: {error}")


def _places(path: Path, header: list[str]) -> list[int]:
    """The position of each column; a missing optional column gets the position after the last one."""
    columns = [_OTHER_SPELLINGS.get(name.strip(), name.strip()) for name in header]
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        found = ", ".join(filter(None, columns)) or "nothing"
        raise CsvError(f"{path}: not a DCGM export: no column {', '.join(missing)}; the header names {found}")
    wanted = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
    return [columns.index(name) if name in columns else len(columns) for name in wanted]


def _record(row: tuple[str, ...]) -> TelemetryRecord:
    timestamp, metric, gpu_id, device, uuid, model_name, hostname, text, *optional = row
    if not uuid or not metric:
        raise ValueError(f"no {'uuid' if metric else 'metric_name'}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"value {text!r} is not a number")
    return TelemetryRecord(
        _time_ms(timestamp), metric, uuid, value, gpu_id, device, model_name, hostname, *optional
    )


@lru_cache(maxsize=1024)
def _time_ms(text: str) -> int:
    """A timestamp in milliseconds, cached because thousands of rows share one."""
    try:
        return parse_time_ms(text)
    except ValueError:
        raise ValueError(f"timestamp {text!r} is not of the form 2025-07-18T20:42:34Z") from None


class Timestamps(StrEnum):
    """The timestamp that a CSV row gets: its own, or the time of sending."""

    ORIGINAL = "original"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Burst:
    """Points sent together, `due_s` after the stream began; `time_ms` is the time of the last point."""

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
        """Bursts at `rate` points a second, or without a rate as fast as possible."""
        start_ms = self.clock.now_ms()
        size = _UNPACED_BURST if rate is None else max(1, int(rate * _BURST_S))
        moved = _moved_clock()
        sent = 0
        for _ in self._passes():
            records = self._records()
            while batch := list(islice(records, size)):
                due_s = 0.0 if rate is None else sent / rate
                moment_ms = self.clock.now_ms() if rate is None else start_ms + int(due_s * 1000)
                yield self._burst(due_s, moment_ms, batch, moved)
                sent += len(batch)

    def as_it_was(self, speed: float) -> Iterator[Burst]:
        """Bursts with the original pauses between rows, divided by `speed`.

        A row older than the row before it is due together with it. Passes are one second of the file's time apart.
        """
        start_ms, moved, passed_s = self.clock.now_ms(), _moved_clock(), 0.0
        for _ in self._passes():
            due_s = passed_s
            first_ms: int | None = None
            for record in self._records():
                first_ms = record.time_ms if first_ms is None else first_ms
                own_s = passed_s + (record.time_ms - first_ms) / 1000 / speed
                due_s = max(due_s, own_s)
                yield self._burst(due_s, start_ms + int(own_s * 1000), [record], moved)
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
        self, due_s: float, moment_ms: int, batch: Iterable[TelemetryRecord], moved: "_Moved"
    ) -> Burst:
        is_moved, time_ms = self.timestamps is Timestamps.NOW, moment_ms
        records = []
        for record in batch:
            time_ms = moved(record, moment_ms) if is_moved else record.time_ms
            records.append(
                ProducerRecord(self.topic, record.to_json(self.form, time_ms=time_ms), record.uuid)
            )
        return Burst(due_s, time_ms, records)


_Moved = Callable[[TelemetryRecord, int], int]


def _moved_clock() -> _Moved:
    """Moves records to another time, each of a series to a different one: a second point would replace the first."""
    last_ms: dict[tuple[str, str], int] = {}

    def moved(record: TelemetryRecord, moment_ms: int) -> int:
        series = (record.uuid, record.metric_name)
        time_ms = last_ms[series] = max(moment_ms, last_ms.get(series, 0) + 1)
        return time_ms

    return moved


def fleet_bursts(
    fleet: Fleet,
    topic: str,
    start_ms: int,
    end_ms: int | None = None,
    *,
    rate: float | None = None,
    clock: Clock = _SYSTEM_CLOCK,
) -> Iterator[Burst]:
    """Bursts with the reports of a fleet from `start_ms` up to `end_ms`, or without end.

    Reports of the past are due at `rate` points a second, or at once; the others at their own time.
    """
    began_ms, sent = clock.now_ms(), 0
    for report in fleet.reports(start_ms, end_ms):
        due_s = 0.0 if rate is None else sent / rate
        records = [ProducerRecord(topic, value, report.uuid) for value in report.records]
        yield Burst(max(due_s, (report.time_ms - began_ms) / 1000), report.time_ms, records)
        sent += len(records)
