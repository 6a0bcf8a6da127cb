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


def die_with_parent(parent: int) -> None:
    """Be killed when the process `parent`, which started this one, is gone, however it went; on Linux only.

    When it is gone already, perhaps before this process could ask who its parent is, this process ends at once.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
