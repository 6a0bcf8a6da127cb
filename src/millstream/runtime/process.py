"""What a helper process of the node asks of the operating system for itself."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_BACKGROUND_NICENESS = 10


def lower_priority() -> None:
    """Give way to the node's own work."""
    os.nice(_BACKGROUND_NICENESS)


def die_with_parent() -> None:
    """Be killed when the process that started this one is gone, however it went; on Linux only.

    Call it first: when the parent is gone already, this process ends at once.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
