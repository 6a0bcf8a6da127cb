"""A tree of names by levels: finds the names that a filter matches, in pages."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")

Path = tuple[str, ...]


class Page(NamedTuple, Generic[V]):
    """`after` continues the search; None at its end."""

    found: list[tuple[str, V]]
    after: str | None


class _Node(Generic[V]):
    __slots__ = ("children", "order", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        # Sorted only once a wildcard needs it.
        self.order: list[str] | None = None
        self.value: V | None = None

    def sorted_children(self) -> list[str]:
        if self.order is None:
            self.order = sorted(self.children)
        return self.order


class NameTree(Generic[V]):
    __slots__ = ("_root", "count")

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()
        self.count = 0

    def put(self, name: str, value: V) -> None:
        node = self._root
        for level in name.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
                if node.order is not None:
                    insort(node.order, level)
            node = child
        self.count += node.value is None
        node.value = value

    def get(self, name: str) -> V | None:
        node: _Node[V] | None = self._root
        for level in name.split("/"):
            if node is None:
                return None
            node = node.children.get(level)
        return None if node is None else node.value

    def remove(self, name: str) -> V | None:
        node = self._root
        path: list[tuple[_Node[V], str]] = []
        for level in name.split("/"):
            child = node.children.get(level)
            if child is None:
                return None
            path.append((node, level))
            node = child
        value, node.value = node.value, None
        self.count -= value is not None
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.value is not None or child.children:
                break
            del parent.children[level]
            if parent.order is not None:
                del parent.order[bisect_left(parent.order, level)]
        return value

    def find(self, text: str, *, after: str | None = None, most_found: int, most_visited: int) -> Page[V]:
        """Matching names in the order of levels, starting after `after`; names may change between pages."""
        found: list[tuple[str, V]] = []
        start = None if after is None else tuple(after.split("/"))
        for visited, (path, node) in enumerate(_walk(self._root, text.split("/"), 0, (), start), 1):
            if node is not None and node.value is not None:
                found.append(("/".join(path), node.value))
            if len(found) >= most_found or visited >= most_visited:
                return Page(found, "/".join(path))
        return Page(found, None)


def _walk(
    node: _Node[V], wanted: list[str], place: int, path: Path, after: Path | None
) -> Iterator[tuple[Path, _Node[V] | None]]:
    """Every visited path, with its node where the filter ends or has reached `#`.

    `after` is given only if it begins with `path`: this node and everything before `after` was visited already.
    """
    level = wanted[place] if place < len(wanted) else None
    if path and after is None:
        yield path, node if level is None or level == "#" else None
    if level is None:
        return
    lowest = after[len(path)] if after is not None and len(after) > len(path) else None
    following = place if level == "#" else place + 1
    for name in _branches(node, level, not path, lowest):
        yield from _walk(
            node.children[name], wanted, following, (*path, name), after if name == lowest else None
        )


def _branches(node: _Node[V], level: str, at_root: bool, lowest: str | None) -> Iterator[str]:
    if level not in ("+", "#"):
        if level in node.children and (lowest is None or level >= lowest):
            yield level
        return
    order = node.sorted_children()
    first = 0 if lowest is None else bisect_left(order, lowest)
    for place in range(first, len(order)):
        # Wildcards at the first level skip names that begin with $.
        if not (at_root and order[place].startswith("$")):
            yield order[place]
