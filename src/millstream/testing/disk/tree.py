"""Names of files and directories, as programs see them and as they are stored."""

import errno
import os
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import NamedTuple

from millstream.testing.disk.content import FileContent


class Directory:
    __slots__ = ("entries", "stored")

    def __init__(self) -> None:
        self.entries: dict[str, Directory | FileContent] = {}
        self.stored: dict[str, Directory | FileContent] = {}


Node = Directory | FileContent


class Edit(NamedTuple):
    """A name now stands for `node`, or for nothing."""

    directory: Directory
    name: str
    node: Node | None


Change = tuple[Edit, ...]


class Tree:
    """Changes of names take effect at once and are stored later; the edits of one change are stored together."""

    def __init__(self) -> None:
        self.root = Directory()
        self._unsynced: list[Change] = []
        self._across: list[Change] = []
        """Changes that concern two directories."""

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in _names(path):
            if not isinstance(node, Directory) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> FileContent:
        node = self.find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return node

    def place(self, path: str) -> tuple[Directory, str]:
        """The directory that holds the path's last name, and that name."""
        *parents, name = _names(path)
        return self.directory("/".join(parents)), name

    def change(self, *edits: Edit) -> None:
        for edit in edits:
            _apply(edit.directory.entries, edit)
        self._unsynced.append(edits)
        if len(edits) > 1 and edits[0].directory is not edits[1].directory:
            self._across.append(edits)

    def sync(self, directory: Directory) -> None:
        """Store the changes of a directory, and of those that share a rename with it, in order."""
        concerned = {directory}
        while True:
            joined = {
                edit.directory
                for change in self._across
                if any(edit.directory in concerned for edit in change)
                for edit in change
            }
            if joined <= concerned:
                break
            concerned |= joined
        waiting: list[Change] = []
        for change in self._unsynced:
            if change[0].directory in concerned:
                _store(change)
            else:
                waiting.append(change)
        self._unsynced = waiting
        if self._across:
            self._across = [change for change in self._across if change[0].directory not in concerned]

    def sync_all(self) -> None:
        for change in self._unsynced:
            _store(change)
        self._unsynced.clear()
        self._across.clear()

    def lose_power(self, random: Random, *, in_order: bool) -> None:
        """Store some of the waiting changes: the first few when `in_order`, otherwise any."""
        waiting, self._unsynced, self._across = self._unsynced, [], []
        if in_order:
            waiting = waiting[: random.randint(0, len(waiting))]
        else:
            waiting = [change for change in waiting if random.random() < 0.5]
        for change in waiting:
            _store(change)
        _restore(self.root)

    def files(self) -> Iterator[tuple[str, FileContent]]:
        """Every file with its path, in a fixed order."""
        yield from _files(self.root, "")

    def used_bytes(self) -> int:
        return _used_bytes(self.root)


@lru_cache(maxsize=4096)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def _apply(entries: dict[str, Node], edit: Edit) -> None:
    if edit.node is None:
        entries.pop(edit.name, None)
    else:
        entries[edit.name] = edit.node


def _store(change: Change) -> None:
    for edit in change:
        _apply(edit.directory.stored, edit)


def _restore(directory: Directory) -> None:
    directory.entries = dict(directory.stored)
    for node in directory.entries.values():
        if isinstance(node, Directory):
            _restore(node)


def _files(directory: Directory, path: str) -> Iterator[tuple[str, FileContent]]:
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, Directory):
            yield from _files(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", node


def _used_bytes(directory: Directory) -> int:
    used = 0
    for node in directory.entries.values():
        used += _used_bytes(node) if isinstance(node, Directory) else len(node.cached)
    return used


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
