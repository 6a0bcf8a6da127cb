"""A long list of changes as several shorter ones: one command would hold up every node for its length."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def slices_of(
    items: Iterable[Item],
    size: int,
    key: Callable[[Item], Hashable],
    cost: Callable[[Item], int] = lambda _: 1,
) -> list[tuple[Item, ...]]:
    """In the order of the items, of about `size` each, and always one.

    What has the same key stays together: a command refuses what it finds twice.
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
