"""Memory that the host of a virtual machine has really given us.

A host that takes free pages back makes a guest pay when it touches them again: 3 s of CPU for a gigabyte of page cache
where 0.3 s is normal. The mock cluster keeps a few megabytes and never meets it; a growing log does all the time. So
that both are measured on a machine with memory, it is touched right before each run.
"""

import mmap
from pathlib import Path

# A run is capped at 1 GB; the page cache needs a little more than that.
RUN_BYTES = 2 << 30
_KEPT_FREE_BYTES = 2 << 30
_PIECE = b"\1" * (1 << 20)


def touch_free_memory(size: int = RUN_BYTES) -> None:
    """Write to `size` bytes of free memory, as far as there are, and give them back to the guest's own free lists."""
    size = min(size, _free_bytes() - _KEPT_FREE_BYTES)
    if size < len(_PIECE):
        return
    with mmap.mmap(-1, size) as memory:
        for position in range(0, size - len(_PIECE) + 1, len(_PIECE)):
            memory[position : position + len(_PIECE)] = _PIECE


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemFree":
            return int(value.split()[0]) << 10
    return 0
