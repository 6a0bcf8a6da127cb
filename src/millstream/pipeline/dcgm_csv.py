"""DCGM's CSV exports, row by row: a file of any size takes no more memory than a row."""

import csv
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import itemgetter
from pathlib import Path

from millstream.pipeline.record import TelemetryRecord, parse_time_ms

REQUIRED_COLUMNS = ("timestamp", "metric_name", "gpu_id", "device", "uuid", "modelName", "Hostname", "value")
OPTIONAL_COLUMNS = ("container", "pod", "namespace", "labels_raw")

# dcgm-exporter writes `hostname` since version 4.
_OTHER_SPELLINGS = {"hostname": "Hostname"}

BadRow = Callable[[str], object]
"""Told of a row that cannot be used: `dcgm.csv:17: value 'hot' is not a number`."""


class CsvError(ValueError):
    """The file as a whole is not a DCGM export; the message names the file and what it lacks."""


def check_header(path: Path) -> None:
    """Raise what `read_dcgm_csv` would raise before its first record."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        _places(path, next(csv.reader(file), []))


def read_dcgm_csv(path: Path, on_bad_row: BadRow) -> Iterator[TelemetryRecord]:
    """The records of a file. A row that cannot be used is left out, and told to `on_bad_row`.

    Raises CsvError when columns are missing and OSError when the file cannot be opened.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        width = len(header)
        pick = itemgetter(*_places(path, header))
        while True:
            try:
                row = next(rows)
                if not row:
                    continue
                if len(row) != width:
                    raise ValueError(f"{len(row)} columns where the header has {width}")
                row.append("")
                yield _record(*pick(row))
            except StopIteration:
                return
            except (ValueError, csv.Error) as error:
                on_bad_row(f"{path}:{rows.line_num}: {error}")


def _places(path: Path, header: list[str]) -> list[int]:
    """Where each column is; one that the file may lack is behind the others."""
    columns = [_OTHER_SPELLINGS.get(name.strip(), name.strip()) for name in header]
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        found = ", ".join(filter(None, columns)) or "nothing"
        raise CsvError(f"{path}: not a DCGM export: no column {', '.join(missing)}; the header names {found}")
    wanted = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
    return [columns.index(name) if name in columns else len(columns) for name in wanted]


def _record(
    timestamp: str,
    metric: str,
    gpu_id: str,
    device: str,
    uuid: str,
    model_name: str,
    hostname: str,
    value: str,
    *optional: str,
) -> TelemetryRecord:
    if not uuid or not metric:
        raise ValueError(f"no {'uuid' if metric else 'metric_name'}")
    return TelemetryRecord(
        _time_ms(timestamp), metric, uuid, _number(value), gpu_id, device, model_name, hostname, *optional
    )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"value {text!r} is not a number")
    return value


@lru_cache(maxsize=1024)
def _time_ms(text: str) -> int:
    """An export has thousands of rows to a timestamp."""
    try:
        return parse_time_ms(text)
    except ValueError:
        raise ValueError(f"timestamp {text!r} is not of the form 2025-07-18T20:42:34Z") from None
