"""The compiled loops: records of a batch, one after the other, into the buffers of Arrow columns.

Nothing here makes a Python object per record. The layout of a record is in `protocol.records`; what these loops
refuse is what its decoder refuses.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`function` compiled to machine code; the type checker sees the original."""
    import numba

    def made(cache: bool) -> F:
        return cast("F", numba.njit(cache=cache, nogil=True)(function))

    try:
        return made(cache=True)
    except RuntimeError:
        # numba found no writable directory for its cache (a read-only installation, no home); use a temporary one.
        if not _use_temporary_cache():
            return made(cache=False)
    try:
        return made(cache=True)
    except RuntimeError:
        return made(cache=False)


def _use_temporary_cache() -> bool:
    import numba

    directory = Path(tempfile.gettempdir()) / f"millstream-numba-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        # Code is loaded from this directory, so it must belong to us.
        if directory.stat().st_uid != os.getuid():
            return False
    except OSError:
        return False
    numba.config.CACHE_DIR = str(directory)  # type: ignore[attr-defined]
    return True


# The largest time that fits into Spark's microseconds; times beyond are limited to it instead of wrapping around.
_MOST_MS = (2**63 - 1) // 1000

OK, CUT, BAD_LENGTH, BAD_DELTA, BAD_FIELD, BAD_VARINT, TRAILING = range(7)
REASONS = {
    CUT: "the records end before the count in the batch header is reached",
    BAD_LENGTH: "a record claims more bytes than there are",
    BAD_DELTA: "a record has an offset delta outside its batch",
    BAD_FIELD: "a record's fields do not fit its length",
    BAD_VARINT: "a variable-length number is too long",
    TRAILING: "bytes follow the last record",
}


@compiled
def _varint(data: Any, position: int, end: int, most_bytes: int) -> tuple[Any, int]:
    """The value and the next position; a position below 0 is the reason for a failure."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    for index in range(most_bytes):
        if position >= end:
            return 0, -BAD_FIELD
        byte = np.uint64(data[position])
        position += 1
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if most_bytes == 5:
                if raw >> np.uint64(32):
                    return 0, -BAD_VARINT
            elif index == 9 and byte > np.uint64(1):
                return 0, -BAD_VARINT
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position
        shift += np.uint64(7)
    return 0, -BAD_VARINT


@compiled
def _copy(target: Any, at: Any, source: Any, position: int, size: int) -> None:
    to = np.uint64(at)
    start = np.uint64(position)
    for index in range(np.uint64(size)):
        target[to + index] = source[start + index]


@compiled
def decode_records(  # noqa: C901 - one loop, so that the compiler sees all of it
    data: Any,
    position: int,
    end: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int,
    has_append_time: bool,
    low: int,
    high: int,
    with_headers: bool,
    at: Any,
    offsets: Any,
    times_us: Any,
    key_offsets: Any,
    key_valid: Any,
    key_data: Any,
    value_offsets: Any,
    value_valid: Any,
    value_data: Any,
    header_spans: Any,
) -> int:
    """Append the records with low <= offset < high to the columns.

    `at` holds the number of rows so far and moves on. `header_spans` gets, for each row, where its headers begin and
    how many there are, if `with_headers`.
    """
    row = at[0]
    key_at = np.int64(key_offsets[row])
    value_at = np.int64(value_offsets[row])
    for _ in range(count):
        length, position = _varint(data, position, end, 5)
        if position < 0:
            return CUT if position == -BAD_FIELD else -position
        record_end = position + length
        if length < 0 or record_end > end:
            return BAD_LENGTH
        # The byte before the timestamp holds the record's attributes, of which Kafka uses none.
        timestamp, position = _varint(data, position + 1, record_end, 10)
        if position < 0:
            return -position
        delta, position = _varint(data, position, record_end, 5)
        if position < 0:
            return -position
        if delta < 0 or delta > last_offset_delta:
            return BAD_DELTA
        # Checked in place, here and below: a function for it would take a tenth more time.
        key_size, key_start = _varint(data, position, record_end, 5)
        if key_start < 0:
            return -key_start
        position = key_start + max(key_size, 0)
        if key_size < -1 or position > record_end:
            return BAD_FIELD
        value_size, value_start = _varint(data, position, record_end, 5)
        if value_start < 0:
            return -value_start
        position = value_start + max(value_size, 0)
        if value_size < -1 or position > record_end:
            return BAD_FIELD
        header_count, position = _varint(data, position, record_end, 5)
        if position < 0:
            return -position
        if header_count < 0:
            return BAD_FIELD
        headers_start = position
        for _ in range(header_count):
            size, position = _varint(data, position, record_end, 5)
            if position < 0:
                return -position
            position += size
            if size < 0 or position > record_end:
                return BAD_FIELD
            size, position = _varint(data, position, record_end, 5)
            if position < 0:
                return -position
            position += max(size, 0)
            if size < -1 or position > record_end:
                return BAD_FIELD
        if position != record_end:
            return BAD_FIELD
        offset = base_offset + delta
        if offset < low or offset >= high:
            continue
        offsets[row] = offset
        time_ms = append_time if has_append_time else base_timestamp + timestamp
        times_us[row] = min(max(time_ms, -_MOST_MS), _MOST_MS) * 1000
        key_valid[row] = key_size >= 0
        if key_size > 0:
            _copy(key_data, key_at, data, key_start, key_size)
            key_at += key_size
        value_valid[row] = value_size >= 0
        if value_size > 0:
            _copy(value_data, value_at, data, value_start, value_size)
            value_at += value_size
        if with_headers:
            header_spans[row, 0] = headers_start
            header_spans[row, 1] = header_count
        row += 1
        key_offsets[row] = key_at
        value_offsets[row] = value_at
    if position != end:
        return TRAILING
    at[0] = row
    return OK


@compiled
def decode_headers(
    data: Any,
    end: int,
    header_spans: Any,
    first_row: int,
    rows: int,
    list_offsets: Any,
    list_valid: Any,
    name_offsets: Any,
    name_data: Any,
    value_offsets: Any,
    value_valid: Any,
    value_data: Any,
) -> None:
    """The headers of rows whose spans `decode_records` has checked, appended to the header columns."""
    at = list_offsets[first_row]
    name_at = np.int64(name_offsets[at])
    value_at = np.int64(value_offsets[at])
    for row in range(first_row, first_row + rows):
        position = header_spans[row, 0]
        count = header_spans[row, 1]
        for _ in range(count):
            size, position = _varint(data, position, end, 5)
            _copy(name_data, name_at, data, position, size)
            position += size
            name_at += size
            size, position = _varint(data, position, end, 5)
            value_valid[at] = size >= 0
            if size > 0:
                _copy(value_data, value_at, data, position, size)
                position += size
                value_at += size
            at += 1
            name_offsets[at] = name_at
            value_offsets[at] = value_at
        list_valid[row] = count > 0
        list_offsets[row + 1] = at
