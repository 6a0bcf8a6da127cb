"""What the node's process and its helpers ask of the operating system for themselves."""

import asyncio
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_BACKGROUND_NICENESS = 10
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 16 << 20
_LARGEST_KEPT_BYTES = 8 << 20
# Also where SIGINT was ignored at the start, as in a shell's background job: a SIGINT that is sent on purpose counts.
_ENDING = (signal.SIGTERM, signal.SIGINT)


def told_to_stop(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Set on SIGTERM and Ctrl-C."""
    stop = asyncio.Event()
    for number in _ENDING:
        # Not the loop's own way: that gives a signal its default action, which is the end, before it can be ignored.
        signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(stop.set))
    return stop


def ignore_endings() -> None:
    """All is done: another wish to stop must not end the rest of the process as a failure."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


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
