"""Commands, their decisions, and how a long list of changes is split into several commands."""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import MetadataRecord

Result_co = TypeVar("Result_co", covariant=True)

NewId = Callable[[], UUID]

CHANGED_AT_ONCE = 250
"""Partitions that one command changes: each node applies a command in one turn of its loop."""


class Decision(msgspec.Struct, Generic[Result_co], frozen=True):
    """`result` is the answer once `records` are durable; without records nothing changes."""

    records: tuple[MetadataRecord, ...]
    result: Result_co


class Command(Protocol[Result_co]):
    def decide(self, image: MetadataImage, new_id: NewId, /) -> Decision[Result_co]:
        """Pure: the same image, command and ids always give the same decision."""
        ...


Item = TypeVar("Item")


def slices_of(
    items: Iterable[Item],
    size: int,
    key: Callable[[Item], Hashable],
    cost: Callable[[Item], int] = lambda _: 1,
) -> list[tuple[Item, ...]]:
    """Slices in the order of the items, of about `size` each; always at least one.

    Items with the same key stay together: a command refuses a key that it finds twice.
    """
    slices: list[list[Item]] = [[]]
    place: dict[Hashable, int] = {}
    room = size
    for item in items:
        name = key(item)
        at = place.get(name)
        if at is None:
            wanted = cost(item)
            if slices[-1] and wanted > room:
                slices.append([])
                room = size
            room -= wanted
            at = place[name] = len(slices) - 1
        slices[at].append(item)
    return [tuple(each) for each in slices]
