"""What the node's process and its helpers ask of the operating system for themselves."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_BACKGROUND_NICENESS = 10
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 16 << 20
_LARGEST_KEPT_BYTES = 8 << 20


def lower_priority() -> None:
    """Give way to the node's own work."""
    os.nice(_BACKGROUND_NICENESS)


def keep_freed_memory() -> None:
    """Have glibc's malloc hold on to a few megabytes that were freed; other libraries are left alone.

    What is read for a reply is freed when it is sent. Given back to the kernel each time, as is the default, it costs a
    page fault for every 4 KB of the next one.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def die_with_parent(parent: int) -> None:
    """Be killed when the process `parent`, which started this one, is gone, however it went; on Linux only.

    When it is gone already, perhaps before this process could ask who its parent is, this process ends at once.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
