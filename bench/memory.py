"""Memory that the host of a virtual machine has really given us.

A host that takes free pages back makes a guest pay when it uses them again: 3 s of CPU for a gigabyte of page cache
where 0.3 s is normal. The mock cluster keeps a few megabytes and never meets it; a growing log does all the time. So
that both are measured on a machine with memory, most of what is free is held while the benchmarks run, and the rest,
which the page cache will use, is touched right before each run.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A run is capped at 1 GB; the page cache, the client and the broker need a little more than that.
_LEFT_FREE_BYTES = 3 << 30
# The least that stays free while the rest is touched: the machine must not begin to reclaim.
_UNTOUCHED_BYTES = 400 << 20
_PIECE = b"\1" * (1 << 20)


@contextmanager
def hold_free_memory() -> Iterator[None]:
    """Keep all free memory but a few gigabytes, touched, until the end of the block."""
    size = _free_bytes() - _LEFT_FREE_BYTES
    if size < len(_PIECE):
        yield
        return
    with mmap.mmap(-1, size) as memory:
        _touch(memory, size)
        yield


def touch_free_memory() -> None:
    """Write to the memory that is free and give it back to the guest's own free lists."""
    size = min(_free_bytes(), _LEFT_FREE_BYTES) - _UNTOUCHED_BYTES
    if size >= len(_PIECE):
        with mmap.mmap(-1, size) as memory:
            _touch(memory, size)


def _touch(memory: mmap.mmap, size: int) -> None:
    for position in range(0, size - len(_PIECE) + 1, len(_PIECE)):
        memory[position : position + len(_PIECE)] = _PIECE


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemFree":
            return int(value.split()[0]) << 10
    return 0
