"""Compiled loops over objects: which known member is where, and whether the whole is plain JSON.

What is found of a member is its kind and where its text lies: a row `kind, start, end` of `slots`, by the member's
number.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.pipeline.job.plain.scan import (
    ESCAPED,
    NULL,
    blank,
    literal_end,
    number_end,
    string_end,
)
from millstream.spark.compiled import compiled

(
    TIMESTAMP, METRIC, UUID, GPU_ID, DEVICE, MODEL, HOST, OLD_HOST, CONTAINER, POD, NAMESPACE, LABELS_RAW, VALUE,
    LABELS, KEY, LABEL_GPU, LABEL_MODEL, LABEL_CONTAINER, LABEL_POD, LABEL_NAMESPACE,
) = range(20)  # fmt: skip
MEMBERS = {
    "timestamp": TIMESTAMP, "metric_name": METRIC, "uuid": UUID, "gpu_id": GPU_ID, "device": DEVICE, "modelName": MODEL,
    "hostname": HOST, "Hostname": OLD_HOST, "container": CONTAINER, "pod": POD, "namespace": NAMESPACE,
    "labels_raw": LABELS_RAW, "value": VALUE, "labels": LABELS, "key": KEY,
}  # fmt: skip
MEMBERS_OF_LABELS = {
    "gpu": LABEL_GPU, "model_name": LABEL_MODEL, "container": LABEL_CONTAINER, "pod": LABEL_POD,
    "namespace": LABEL_NAMESPACE,
}  # fmt: skip
SLOTS = 20

ABSENT, TEXT, ESCAPED_TEXT, NUMBER, NOTHING, FLAG, OBJECT = range(7)

MOST_MEMBERS = 64
_LONGEST_NAME = 1000

NOT_PLAIN = -1
OBJECT_FOR_VALUE = -2

AT, COUNT = 0, 1
"""Of the state of a walk: where the object for a value begins, and how many members there were."""

Bytes = npt.NDArray[np.uint8]


class Names(NamedTuple):
    """Names with numbers, for `find`: a hash table without gaps in its chains."""

    hashes: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    text: Bytes

    @classmethod
    def of(cls, numbered: dict[str, int]) -> "Names":
        size = 16
        while size < 3 * len(numbered):
            size *= 2
        text = np.frombuffer("".join(numbered).encode(), np.uint8).copy()
        made = cls(
            np.zeros(size, np.uint64),
            np.full(size, -1, np.int64),
            np.zeros(size, np.int64),
            np.zeros(size, np.int64),
            text,
        )
        start = 0
        for name, number in numbered.items():
            end = start + len(name.encode())
            name_hash = hash_of(text, start, end)
            place = int(name_hash) % size
            while made.numbers[place] >= 0:
                place = (place + 1) % size
            made.hashes[place], made.numbers[place] = name_hash, number
            made.starts[place], made.ends[place] = start, end
            start = end
        return made


@compiled
def hash_of(data: Any, start: int, end: int) -> Any:
    """FNV-1a."""
    made = np.uint64(0xCBF29CE484222325)
    for place in range(np.uint64(start), np.uint64(end)):
        made = (made ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
    return made


@compiled
def find(data: Any, start: int, end: int, name_hash: Any, names: Any) -> Any:
    """The number of a name, or -1."""
    size = len(names.numbers)
    place = np.int64(name_hash & np.uint64(size - 1))
    while names.numbers[place] >= 0:
        if names.hashes[place] == name_hash and names.ends[place] - names.starts[place] == end - start:
            first = names.starts[place]
            same = True
            for index in range(end - start):
                if names.text[first + index] != data[start + index]:
                    same = False
                    break
            if same:
                return np.int64(names.numbers[place])
        place = (place + 1) & (size - 1)
    return np.int64(-1)


@compiled
def name_end(data: Any, position: int, end: int, hashes: Any, count: Any) -> tuple[int, int]:
    """Behind the quote of the name that begins at `position`, and behind the colon and blanks that follow.

    Its hash is noted; a name that comes twice (or whose hash does) is not plain, nor is one that is not plain ASCII.
    """
    if data[position] != 0x22 or count >= MOST_MEMBERS:
        return -1, -1
    behind, holds = string_end(data, position + 1, end)
    if behind < 0 or holds or behind - position > _LONGEST_NAME:
        return -1, -1
    made = hash_of(data, position + 1, behind - 1)
    for place in range(count):
        if hashes[place] == made:
            return -1, -1
    hashes[count] = made
    at = blank(data, behind, end)
    if at >= end or data[at] != 0x3A:
        return -1, -1
    at = blank(data, at + 1, end)
    if at >= end:
        return -1, -1
    return behind, at


@compiled
def next_member(data: Any, position: int, end: int) -> tuple[int, bool]:
    """The next name, or behind the object and True."""
    position = blank(data, position, end)
    if position >= end:
        return -1, False
    if data[position] == 0x7D:
        return position + 1, True
    if data[position] != 0x2C:
        return -1, False
    position = blank(data, position + 1, end)
    return (position, False) if position < end else (-1, False)


@compiled
def first_member(data: Any, position: int, end: int) -> tuple[int, bool]:
    """From behind the brace: the first name, or behind the object and True."""
    position = blank(data, position, end)
    if position >= end:
        return -1, False
    if data[position] == 0x7D:
        return position + 1, True
    return position, False


@compiled
def simple_value_end(data: Any, position: int, end: int) -> tuple[int, int, int]:
    """Behind a value that is no object and no array, its kind, and what it holds if it is a string."""
    byte = data[position]
    if byte == 0x22:
        behind, holds = string_end(data, position + 1, end)
        return behind, ESCAPED_TEXT if holds & ESCAPED else TEXT, holds
    if byte == 0x2D or 0x30 <= byte <= 0x39:
        return number_end(data, position, end), NUMBER, 0
    behind, which = literal_end(data, position, end)
    return behind, NOTHING if which == NULL else FLAG, 0


@compiled
def labels_end(data: Any, position: int, end: int, slots: Any, hashes: Any, names: Any) -> int:
    """Behind an object of texts without escapes and of whole numbers, from behind its brace."""
    count = np.int64(0)
    position, done = first_member(data, position, end)
    while position >= 0 and not done:
        start = position + 1
        behind, position = name_end(data, position, end, hashes, count)
        if position < 0:
            return -1
        value = position
        position, kind, holds = simple_value_end(data, position, end)
        if position < 0 or holds & ESCAPED or (kind != TEXT and kind != NUMBER):
            return -1
        if kind == NUMBER and not is_whole(data, value, position):
            return -1
        slot = find(data, start, behind - 1, hashes[count], names)
        count += 1
        if slot >= 0:
            inside = 1 if kind == TEXT else 0
            slots[slot, 0], slots[slot, 1], slots[slot, 2] = kind, value + inside, position - inside
        position, done = next_member(data, position, end)
    return position


@compiled
def is_whole(data: Any, start: int, end: int) -> bool:
    """Whether a number is its own text: no sign, no point, within 64 bits."""
    if end - start > 18:
        return False
    for place in range(start, end):  # noqa: SIM110 - compiled
        if data[place] < 0x30 or data[place] > 0x39:
            return False
    return True


@compiled
def flat_end(data: Any, position: int, end: int, hashes: Any) -> int:
    """Behind an object of simple values, from behind its brace."""
    count = np.int64(0)
    position, done = first_member(data, position, end)
    while position >= 0 and not done:
        _, position = name_end(data, position, end, hashes, count)
        if position < 0:
            return -1
        count += 1
        position, _, _ = simple_value_end(data, position, end)
        if position < 0:
            return -1
        position, done = next_member(data, position, end)
    return position


@compiled
def members_end(
    data: Any,
    position: int,
    end: int,
    resume: Any,
    slots: Any,
    state: Any,
    hashes: Any,
    inner_hashes: Any,
    names: Any,
    label_names: Any,
) -> int:
    """Behind the object whose inside begins at `position`; its known members are in `slots`.

    OBJECT_FOR_VALUE when the member `value` is an object: `state` has where it begins, and another call with `resume`
    and the position behind that object goes on.
    """
    count = state[COUNT]
    if resume:
        position, done = next_member(data, position, end)
    else:
        position, done = first_member(data, position, end)
    while position >= 0 and not done:
        start = position + 1
        behind, position = name_end(data, position, end, hashes, count)
        if position < 0:
            return NOT_PLAIN
        slot = find(data, start, behind - 1, hashes[count], names)
        count += 1
        value = position
        if data[position] == 0x7B:
            if slot == VALUE:
                state[AT], state[COUNT] = position, count
                return OBJECT_FOR_VALUE
            if slot == LABELS:
                position = labels_end(data, position + 1, end, slots, inner_hashes, label_names)
                slots[LABELS, 0], slots[LABELS, 1], slots[LABELS, 2] = OBJECT, value, position
            elif slot < 0 or slot == KEY:
                position = flat_end(data, position + 1, end, inner_hashes)
                if slot == KEY:
                    slots[KEY, 0] = OBJECT
            else:
                return NOT_PLAIN
            if position < 0:
                return NOT_PLAIN
        else:
            position, kind, _ = simple_value_end(data, position, end)
            if position < 0:
                return NOT_PLAIN
            if slot >= 0:
                inside = 1 if kind in (TEXT, ESCAPED_TEXT) else 0
                slots[slot, 0], slots[slot, 1], slots[slot, 2] = kind, value + inside, position - inside
        position, done = next_member(data, position, end)
    state[COUNT] = count
    return position
