"""A file's bytes, as programs see them and as they are stored, and what a loss of power leaves of unsynced bytes."""

from enum import Enum
from itertools import pairwise
from random import Random
from typing import NamedTuple

SECTOR_BYTES = 512


class Survival(Enum):
    NOTHING = "nothing"
    EVERYTHING = "everything"
    PREFIX = "prefix"
    """The bytes up to some point."""
    SECTORS = "sectors"
    """Some of the disk's sectors, in any order; missing ones keep their former content, or zeros."""


def surviving_spans(survival: Survival, random: Random, offset: int, size: int) -> list[tuple[int, int]]:
    """The stored parts, as (start, end) in the file, of a write of `size` bytes at `offset`."""
    end = offset + size
    match survival:
        case Survival.NOTHING:
            return []
        case Survival.EVERYTHING:
            return [(offset, end)]
        case Survival.PREFIX:
            return [(offset, offset + random.randint(0, size))]
        case Survival.SECTORS:
            cuts = [offset, *range(offset - offset % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES), end]
            return [(start, stop) for start, stop in pairwise(cuts) if stop > start and random.random() < 0.5]


class Write(NamedTuple):
    offset: int
    data: bytes


class Truncate(NamedTuple):
    size: int


class FileContent:
    """`cached` is the page cache; `stored` follows it when the file is synced."""

    __slots__ = ("_unsynced", "cached", "stored")

    def __init__(self) -> None:
        self.cached = bytearray()
        self.stored = bytearray()
        self._unsynced: list[Write | Truncate] = []

    def write(self, offset: int, data: bytes) -> None:
        self._change(Write(offset, data))

    def truncate(self, size: int) -> None:
        self._change(Truncate(size))

    def _change(self, change: Write | Truncate) -> None:
        _apply(self.cached, change)
        self._unsynced.append(change)

    def sync(self) -> None:
        for change in self._unsynced:
            _apply(self.stored, change)
        self._unsynced.clear()

    def fail_sync(self, survival: Survival, random: Random) -> None:
        """As on Linux: the pages count as clean afterwards, and programs continue to see bytes that may not be
        stored.
        """
        self._store_some(survival, random)

    def drop_cache(self) -> None:
        """Clean pages are read from the disk again; changes not stored yet stay visible."""
        self.cached = bytearray(self.stored)
        for change in self._unsynced:
            _apply(self.cached, change)

    def lose_power(self, survival: Survival, random: Random) -> None:
        self._store_some(survival, random)
        self.cached = bytearray(self.stored)

    def flip_bit(self, position: int, bit: int) -> None:
        for copy in (self.cached, self.stored):
            if position < len(copy):
                copy[position] ^= 1 << bit

    def _store_some(self, survival: Survival, random: Random) -> None:
        # Once a write is missing, a prefix has ended.
        reached = True
        for change in self._unsynced:
            if isinstance(change, Truncate):
                if _survives(survival, random) and reached:
                    _apply(self.stored, change)
                else:
                    reached = survival is not Survival.PREFIX
                continue
            if not reached:
                continue
            spans = surviving_spans(survival, random, change.offset, len(change.data))
            for start, end in spans:
                _apply(self.stored, Write(start, change.data[start - change.offset : end - change.offset]))
            if survival is Survival.PREFIX and spans[-1][1] < change.offset + len(change.data):
                reached = False
        self._unsynced.clear()


def _survives(survival: Survival, random: Random) -> bool:
    if survival in (Survival.NOTHING, Survival.EVERYTHING):
        return survival is Survival.EVERYTHING
    return random.random() < 0.5


def _apply(data: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Truncate):
        if change.size < len(data):
            del data[change.size :]
        else:
            data.extend(bytes(change.size - len(data)))
        return
    if not change.data:
        return
    if change.offset > len(data):
        data.extend(bytes(change.offset - len(data)))
    data[change.offset : change.offset + len(change.data)] = change.data
