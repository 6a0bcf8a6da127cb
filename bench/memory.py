"""Memory that the host of a virtual machine has really given us.

On many hosts a guest's page costs a fault the first time it is touched: 3 s of CPU for a gigabyte of page cache where
0.3 s is normal. The mock cluster keeps a few megabytes and never meets it; a log that grows does, once per machine.
"""

import mmap
from pathlib import Path

_KEPT_FREE_BYTES = 4 << 30
_MOST_BYTES = 12 << 30
_PIECE = b"\1" * (1 << 20)


def touch_free_memory() -> int:
    """Write to as much free memory as the benchmarks will fill with files; returns the number of bytes."""
    size = min(_MOST_BYTES, _free_bytes() - _KEPT_FREE_BYTES)
    if size <= 0:
        return 0
    with mmap.mmap(-1, size) as memory:
        for position in range(0, size - len(_PIECE), len(_PIECE)):
            memory[position : position + len(_PIECE)] = _PIECE
    return size


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemFree":
            return int(value.split()[0]) << 10
    return 0
