"""Compiled loops over records: which are plain, their time and value, and where their texts lie."""

from typing import Any

import numpy as np

from millstream.pipeline.job.plain.members import (
    ABSENT,
    AT,
    CONTAINER,
    COUNT,
    DEVICE,
    ESCAPED_TEXT,
    FLAG,
    GPU_ID,
    HOST,
    KEY,
    LABEL_CONTAINER,
    LABEL_GPU,
    LABEL_MODEL,
    LABEL_NAMESPACE,
    LABEL_POD,
    LABELS,
    LABELS_RAW,
    METRIC,
    MODEL,
    NAMESPACE,
    NOTHING,
    NUMBER,
    OBJECT,
    OBJECT_FOR_VALUE,
    OLD_HOST,
    POD,
    TEXT,
    TIMESTAMP,
    UUID,
    VALUE,
    find,
    first_member,
    hash_of,
    is_whole,
    members_end,
    next_member,
)  # fmt: skip
from millstream.pipeline.job.plain.scan import (
    HARD_NUMBER,
    NO_NUMBER,
    NO_TIME,
    blank,
    number_end,
    number_of,
    string_end,
    time_of,
    unescaped,
)  # fmt: skip
from millstream.spark.compiled import compiled

DOUBTFUL, PLAIN, PLAIN_WITH_HARD_NUMBER = 0, 1, 2

TEXT_COLUMNS = (
    "uuid", "gpu_id", "device", "model_name", "hostname", "container", "pod", "namespace", "labels_raw",
)  # fmt: skip
"""The columns of a point that are texts of the record, in the order of its spans."""
_UUID, _GPU_ID, _DEVICE, _MODEL, _HOST, _CONTAINER, _POD, _NAMESPACE, _LABELS = range(9)
_VALUE_SPAN = 9
SPANS = 10

_LABELS_OF = np.array(
    [
        (DEVICE, -1, _DEVICE), (MODEL, LABEL_MODEL, _MODEL), (CONTAINER, LABEL_CONTAINER, _CONTAINER),
        (POD, LABEL_POD, _POD), (NAMESPACE, LABEL_NAMESPACE, _NAMESPACE),
    ]
)  # fmt: skip
"""Member, the member of `labels` that stands in for it, and column."""
_MOST_LABELS = 64


@compiled
def read_records(
    data: Any,
    offsets: Any,
    present: Any,
    logged_us: Any,
    now_us: int,
    earliest_us: int,
    ahead_us: int,
    most_bytes: int,
    names: Any,
    label_names: Any,
    metric_names: Any,
    slots: Any,
    hashes: Any,
    status: Any,
    times_us: Any,
    values: Any,
    metrics: Any,
    spans: Any,
) -> None:
    """`logged_us` is the records' time in the log, with a very early one for none; `slots` and `hashes` are room."""
    state = np.zeros(2, np.int64)
    for row in range(len(present)):
        status[row] = DOUBTFUL
        start, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if not present[row] or end == start or end - start > most_bytes:
            continue
        which = _walk(data, start, end, names, label_names, slots, hashes, state)
        if which < 0:
            continue
        found = slots[which]
        at = found[TIMESTAMP]
        if at[0] != TEXT or found[METRIC, 0] != TEXT:
            continue
        time_us = time_of(data, at[1], at[2])
        logged = now_us
        if earliest_us <= logged_us[row] < now_us:
            logged = logged_us[row]
        if time_us == NO_TIME or time_us < earliest_us or time_us > logged + ahead_us:
            continue
        first, last = found[METRIC, 1], found[METRIC, 2]
        metric = find(data, first, last, hash_of(data, first, last), metric_names)
        if metric < 0:
            continue
        at = found[VALUE]
        if at[0] != NUMBER and (
            at[0] != TEXT
            or at[1] == at[2]
            or not _is_number(data, at[1])
            or number_end(data, at[1], at[2]) != at[2]
        ):
            continue
        value, trouble = number_of(data, at[1], at[2])
        if trouble == NO_NUMBER or not _texts(data, slots, which, spans[row]):
            continue
        spans[row, _VALUE_SPAN, 1], spans[row, _VALUE_SPAN, 2] = at[1], at[2]
        times_us[row], values[row], metrics[row] = time_us, value, metric
        status[row] = PLAIN_WITH_HARD_NUMBER if trouble == HARD_NUMBER else PLAIN


@compiled
def _is_number(data: Any, position: int) -> Any:
    return data[position] == 0x2D or 0x30 <= data[position] <= 0x39


@compiled
def _walk(
    data: Any, start: Any, end: Any, names: Any, label_names: Any, slots: Any, hashes: Any, state: Any
) -> int:
    """Which of the two `slots` has the record: 1 when it was in an envelope, whose key is then in the other; or -1."""
    position = blank(data, start, end)
    if position >= end or data[position] != 0x7B:
        return -1
    slots[0, :, 0] = ABSENT
    state[COUNT] = 0
    outer, inner = slots[0], slots[1]
    # No literals: the walk would be compiled for each of them.
    first, again = np.int64(0), np.int64(1)
    position = members_end(
        data, position + 1, end, first, outer, state, hashes[0], hashes[1], names, label_names
    )
    which = 0
    if position == OBJECT_FOR_VALUE:
        inner[:, 0] = ABSENT
        count, at = state[COUNT], state[AT]
        state[COUNT] = 0
        position = members_end(
            data, at + 1, end, first, inner, state, hashes[2], hashes[1], names, label_names
        )
        if position < 0:
            return -1
        state[COUNT] = count
        position = members_end(
            data, position, end, again, outer, state, hashes[0], hashes[1], names, label_names
        )
        # Only an object without a metric of its own is an envelope.
        if outer[METRIC, 0] != ABSENT or (outer[KEY, 0] != ABSENT and outer[KEY, 0] != TEXT):
            return -1
        which = 1
    if position < 0 or blank(data, position, end) != end:
        return -1
    return which


@compiled
def _texts(  # noqa: C901 - one field after the other
    data: Any, slots: Any, which: int, spans: Any
) -> bool:
    """Fill a record's spans; False when one of its texts is not plain."""
    found = slots[which]
    names_gpu = found[GPU_ID, 0] == TEXT and _begins_with_letter(data, found[GPU_ID])
    if found[UUID, 0] == TEXT and found[UUID, 1] < found[UUID, 2]:
        _set(spans, np.int64(_UUID), found[UUID])
    elif found[UUID, 0] != ABSENT and found[UUID, 0] != TEXT:
        return False
    elif names_gpu:
        _set(spans, np.int64(_UUID), found[GPU_ID])
    elif which == 1 and slots[0, KEY, 0] == TEXT and slots[0, KEY, 1] < slots[0, KEY, 2]:
        _set(spans, np.int64(_UUID), slots[0, KEY])
    else:
        return False
    if found[GPU_ID, 0] != ABSENT and found[GPU_ID, 0] != TEXT and found[GPU_ID, 0] != NUMBER:
        return False
    gpu = np.int64(LABEL_GPU if names_gpu else GPU_ID)
    if not _label(data, found, gpu, np.int64(-1), spans, np.int64(_GPU_ID)):
        return False
    for place in range(len(_LABELS_OF)):
        if not _label(data, found, _LABELS_OF[place, 0], _LABELS_OF[place, 1], spans, _LABELS_OF[place, 2]):
            return False
    host = HOST
    if found[OLD_HOST, 0] != ABSENT:
        if found[HOST, 0] != ABSENT:
            return False
        host = OLD_HOST
    if found[host, 0] != ABSENT and found[host, 0] != TEXT and found[host, 0] != ESCAPED_TEXT:
        return False
    _set(spans, np.int64(_HOST), found[host])
    raw = LABELS_RAW
    if found[raw, 0] == ABSENT or found[raw, 0] == NOTHING:
        raw = LABELS
    elif found[raw, 0] != TEXT and found[raw, 0] != ESCAPED_TEXT:
        return False
    if found[LABELS, 0] == NUMBER or found[LABELS, 0] == FLAG:
        return False
    _set(spans, np.int64(_LABELS), found[raw])
    return True


@compiled
def _set(spans: Any, column: Any, found: Any) -> None:
    """What is not there has whatever positions the record before left."""
    if found[0] == ABSENT or found[0] == NOTHING:
        spans[column, 0], spans[column, 1], spans[column, 2] = ABSENT, 0, 0
    else:
        spans[column, 0], spans[column, 1], spans[column, 2] = found[0], found[1], found[2]


@compiled
def _begins_with_letter(data: Any, found: Any) -> Any:
    if found[1] >= found[2]:
        return False
    byte = data[found[1]]
    return 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A


@compiled
def _label(data: Any, found: Any, slot: Any, other: Any, spans: Any, column: Any) -> bool:
    """A text or a whole number, or nothing; then `other` counts, if there is one. False for all else, and for what
    looks like the text of an object or an array."""
    if other >= 0 and (found[slot, 0] == ABSENT or found[slot, 0] == NOTHING):
        slot = other
    at = found[slot]
    kind = at[0]
    if kind == NUMBER:
        if not is_whole(data, at[1], at[2]):
            return False
    elif kind in (TEXT, ESCAPED_TEXT):
        if at[1] < at[2] and (data[at[1]] == 0x7B or data[at[1]] == 0x5B):
            return False
    elif kind != ABSENT and kind != NOTHING:
        return False
    _set(spans, column, at)
    return True


@compiled
def copy_texts(data: Any, spans: Any, chosen: Any, column: int, offsets: Any, target: Any) -> None:
    """The texts of one column of the chosen rows, one after the other."""
    at: Any = np.int64(0)
    offsets[0] = 0
    keys = np.empty((_MOST_LABELS, 4), np.int64)
    for index in range(len(chosen)):
        span = spans[chosen[index], column]
        # Of one width everywhere, or all that is called is compiled once more.
        kind, position, end = span[0], np.int64(span[1]), np.int64(span[2])
        if kind in (TEXT, NUMBER):
            for place in range(position, end):
                target[at] = data[place]
                at += 1
        elif kind == ESCAPED_TEXT:
            while position < end:
                byte = data[position]
                position += 1
                if byte == 0x5C:
                    byte = np.uint8(unescaped(data[position]))
                    position += 1
                target[at] = byte
                at += 1
        elif kind == OBJECT:
            at = _copy_sorted(data, position, end, keys, target, at)
        offsets[index + 1] = at


@compiled
def _copy_sorted(data: Any, position: Any, end: Any, keys: Any, target: Any, at: Any) -> Any:
    """An object that `labels_end` has seen, as a variant writes it: no blanks, members by name."""
    count = 0
    position, done = first_member(data, position + 1, end)
    while not done:
        behind, _ = string_end(data, position + 1, end)
        name, name_last = position, behind
        position = blank(data, blank(data, behind, end) + 1, end)
        value = position
        if data[position] == 0x22:
            position, _ = string_end(data, position + 1, end)
        else:
            position = number_end(data, position, end)
        place = count
        while place > 0 and _before(
            data, name + 1, name_last - 1, keys[place - 1, 0] + 1, keys[place - 1, 1] - 1
        ):
            keys[place] = keys[place - 1]
            place -= 1
        keys[place, 0], keys[place, 1], keys[place, 2], keys[place, 3] = name, name_last, value, position
        count += 1
        position, done = next_member(data, position, end)
    target[at] = 0x7B
    at += 1
    for place in range(count):
        if place:
            target[at] = 0x2C
            at += 1
        for source in range(keys[place, 0], keys[place, 1]):
            target[at] = data[source]
            at += 1
        target[at] = 0x3A
        at += 1
        for source in range(keys[place, 2], keys[place, 3]):
            target[at] = data[source]
            at += 1
    target[at] = 0x7D
    return at + 1


@compiled
def _before(data: Any, start: int, end: int, other: int, other_end: int) -> bool:
    while start < end and other < other_end:
        if data[start] != data[other]:
            return bool(data[start] < data[other])
        start += 1
        other += 1
    return start == end and other < other_end
