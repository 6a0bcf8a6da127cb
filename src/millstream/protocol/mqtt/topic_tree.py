"""A tree of filters by levels: finds all filters that match a name.

At each level at most two branches are followed, the name's own and `+`, so that filters that do not match cost nothing.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Node(Generic[K, V]):
    __slots__ = ("children", "holders")

    def __init__(self) -> None:
        self.children: dict[str, _Node[K, V]] = {}
        self.holders: dict[K, V] = {}


class TopicTree(Generic[K, V]):
    """Maps each filter to its holders, with a value for each: a session's options, for example."""

    __slots__ = ("_root", "count")

    def __init__(self) -> None:
        self._root: _Node[K, V] = _Node()
        self.count = 0

    def put(self, text: str, holder: K, value: V) -> V | None:
        """Add or replace a holder; returns its old value."""
        node = self._root
        for level in text.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        before = node.holders.get(holder)
        self.count += holder not in node.holders
        node.holders[holder] = value
        return before

    def remove(self, text: str, holder: K) -> V | None:
        """Remove a holder and branches that become empty; returns its value."""
        node = self._root
        path: list[tuple[_Node[K, V], str]] = []
        for level in text.split("/"):
            child = node.children.get(level)
            if child is None:
                return None
            path.append((node, level))
            node = child
        if holder not in node.holders:
            return None
        value = node.holders.pop(holder)
        self.count -= 1
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.holders or child.children:
                break
            del parent.children[level]
        return value

    def match(self, topic: str) -> list[dict[K, V]]:
        """The holders of each matching filter, as the tree's own dictionaries: do not change or keep them."""
        nodes = [self._root]
        found: list[dict[K, V]] = []
        # Wildcards at the first level skip names that begin with $.
        wildcards = not topic.startswith("$")
        for level in topic.split("/"):
            following: list[_Node[K, V]] = []
            for node in nodes:
                children = node.children
                if wildcards:
                    if (rest := children.get("#")) is not None:
                        found.append(rest.holders)
                    if (any_level := children.get("+")) is not None:
                        following.append(any_level)
                if (same := children.get(level)) is not None:
                    following.append(same)
            if not following:
                return found
            nodes = following
            wildcards = True
        for node in nodes:
            if node.holders:
                found.append(node.holders)
            if (rest := node.children.get("#")) is not None:
                found.append(rest.holders)
        return found
