"""Requests whose elements are independent are answered slice by slice, as several smaller requests.

Handlers do not notice: they get a part of the request, and the parts' answers are joined.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from millstream.broker.server.long_work import SLICE_ELEMENTS
from millstream.protocol.codec import Message

Path = tuple[str, ...]


class SlicePlan(NamedTuple):
    """The nested arrays of the request (`asked`) and of the reply (`answered`), from the outside in.

    An element that is cut (a topic, because of its many partitions) is answered in parts. These are next to each other
    and agree in the fields of `keys`, one entry for each array but the innermost, by which they are joined.

    `once` names a field: elements with the same value that ask for everything are answered once ("" where elements are
    names themselves). With two fields, for a topic and a partition, the first element of each pair is answered. With
    `is_read` the work ends when the client is gone.
    """

    asked: Path
    answered: Path
    keys: tuple[Path, ...] = ()
    slice: int = SLICE_ELEMENTS
    once: str | tuple[str, str] | None = None
    is_read: bool = True


def without_repeats(plan: SlicePlan, request: Message) -> Any:
    """The request without repeated elements: a few bytes could ask for a long answer thousands of times."""
    if isinstance(plan.once, tuple):
        return _partitions_once(request, plan.asked, *plan.once)
    name, *inner = plan.asked
    elements = getattr(request, name)
    if plan.once is None or not elements or len(elements) == 1:
        return request
    seen: set[str] = set()
    kept = []
    for element in elements:
        if not inner or getattr(element, inner[0]) is None:
            named = getattr(element, plan.once) if plan.once else element
            if named in seen:
                continue
            seen.add(named)
        kept.append(element)
    return request if len(kept) == len(elements) else _changed(request, name, kept)


def _partitions_once(request: Message, path: Path, name: str, index: str) -> Any:
    outer, inner = path
    seen: dict[str, set[int]] = {}
    topics, is_same = [], True
    for topic in getattr(request, outer):
        known = seen.setdefault(getattr(topic, name), set())
        partitions = getattr(topic, inner)
        kept = []
        for each in partitions:
            if (named := getattr(each, index)) not in known:
                known.add(named)
                kept.append(each)
        if len(kept) < len(partitions):
            is_same = False
            topic = _changed(topic, inner, kept)
        if kept or not partitions:
            topics.append(topic)
    return request if is_same else _changed(request, outer, topics)


def is_long(plan: SlicePlan, request: Message) -> bool:
    return _weight(request, plan.asked, plan.slice) > plan.slice


def parts_of(plan: SlicePlan, request: Message) -> Iterator[Any]:
    """The request as several requests of about a slice each, in order."""
    name, *inner = plan.asked
    for elements, _ in _cut(getattr(request, name), tuple(inner), plan.slice):
        yield _changed(request, name, elements)


def joined(plan: SlicePlan, answers: list[Any]) -> Any:
    name, *inner = plan.answered
    elements = [each for answer in answers for each in getattr(answer, name)]
    return _changed(answers[0], name, _one_again(elements, tuple(inner), plan.keys))


def _weight(holder: Any, path: Path, whole: int) -> int:
    """The number of elements at all depths. A null array asks for everything and counts as a whole slice."""
    elements = getattr(holder, path[0])
    if elements is None:
        return whole
    if len(path) == 1:
        return len(elements)
    return len(elements) + sum(_weight(each, path[1:], whole) for each in elements)


def _cut(elements: tuple[Any, ...], path: Path, slice_size: int) -> Iterator[tuple[list[Any], int]]:
    """Pieces of about a slice, and how much is in each."""
    piece: list[Any] = []
    weight = 0
    for part, size in _parts(elements, path, slice_size):
        if piece and weight + size > slice_size:
            yield piece, weight
            piece, weight = [], 0
        piece.append(part)
        weight += size
    if piece:
        yield piece, weight


def _parts(elements: tuple[Any, ...], path: Path, slice_size: int) -> Iterator[tuple[Any, int]]:
    for element in elements:
        if not path or not getattr(element, path[0]):
            yield element, slice_size if path and getattr(element, path[0]) is None else 1
            continue
        for some, weight in _cut(getattr(element, path[0]), path[1:], slice_size):
            yield _changed(element, path[0], some), weight + 1


def _one_again(elements: list[Any], path: Path, keys: tuple[Path, ...]) -> list[Any]:
    if not path:
        return elements
    whole: list[Any] = []
    at = 0
    while at < len(elements):
        first, end = elements[at], at + 1
        while end < len(elements) and all(getattr(elements[end], k) == getattr(first, k) for k in keys[0]):
            end += 1
        if end > at + 1:
            inner = [each for part in elements[at:end] for each in getattr(part, path[0])]
            first = _changed(first, path[0], _one_again(inner, path[1:], keys[1:]))
        whole.append(first)
        at = end
    return whole


def _changed(value: Any, name: str, elements: list[Any]) -> Any:
    change = {name: tuple(elements)}
    return (
        msgspec.structs.replace(value, **change)
        if isinstance(value, msgspec.Struct)
        else replace(value, **change)
    )
