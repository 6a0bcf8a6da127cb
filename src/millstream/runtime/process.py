"""Operating system calls of the node's process and its helpers: signals, priority, memory."""

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
# SIGINT counts even if it was ignored at the start, as in a shell's background job: somebody sent it on purpose.
_ENDING = (signal.SIGTERM, signal.SIGINT)


def told_to_stop(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Set on SIGTERM and Ctrl-C."""
    stop = asyncio.Event()

    def tell(_number: int, _frame: object) -> None:
        # A node that could not start has closed its loop, and is about to say why.
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    for number in _ENDING:
        # Not `loop.add_signal_handler`: removing its handler restores the default action, which ends the process.
        signal.signal(number, tell)
    return stop


def ignore_endings() -> None:
    """Ignore further signals once the work is done, so that the process does not end as failed."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def lower_priority() -> None:
    """Lower this process's priority below the node's."""
    os.nice(_BACKGROUND_NICENESS)


def keep_freed_memory() -> None:
    """Have glibc's malloc keep a few freed megabytes; no effect on other C libraries.

    The buffer of a reply is freed when it is sent. By default it would be returned to the kernel each time, which costs
    a page fault for every 4 KB of the next reply.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def die_with_parent(parent: int) -> None:
    """Have this process killed when its `parent` ends, for whatever reason; on Linux only.

    If the parent has ended already, this process ends at once.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
