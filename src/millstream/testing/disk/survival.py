"""What a loss of power leaves of a write that was not synced."""

from enum import Enum
from itertools import pairwise
from random import Random

SECTOR_BYTES = 512


class Survival(Enum):
    NOTHING = "nothing"
    EVERYTHING = "everything"
    PREFIX = "prefix"
    """The bytes up to some point."""
    SECTORS = "sectors"
    """Some of the disk's sectors, in any order; the ones that are missing keep what they held, or zeros."""


def surviving_spans(survival: Survival, random: Random, offset: int, size: int) -> list[tuple[int, int]]:
    """The parts, as (start, end) in the file, of a write of `size` bytes at `offset` that were stored."""
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
