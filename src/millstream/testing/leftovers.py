"""What tests and benchmarks start ends with the process that runs them, however that ends: also by SIGKILL, midway.

A process on its own waits for the end of this one, and then kills all that carries this one's mark in its environment:
who was started by whom, by which means and with how many others in between does not matter.
"""

import os
import sys
import uuid

_MARK = "STARTED_BY_TEST_RUN"

_WATCH = """
import os, signal, sys, time
sys.stdin.buffer.read()
mark = sys.argv[1].encode()
# What is started meanwhile is found when it is looked again.
found = True
while found:
    found = False
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                marked = mark in file.read().split(b"\\0")
            if marked:
                os.kill(int(name), signal.SIGKILL)
                found = True
        except OSError:
            pass
    time.sleep(0.02)
"""

_pipes: list[int] = []


def end_with_this_process() -> None:
    """For all that is started from now on."""
    if _pipes:
        return
    mark = f"{os.getpid()}-{uuid.uuid4()}"
    ours, theirs = os.pipe()
    nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    # In a session of its own: a signal to all processes of a run spares it.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _WATCH, f"{_MARK}={mark}"],
        {name: value for name, value in os.environ.items() if name != _MARK},
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, 0), *nowhere],
        setsid=True,
    )
    os.close(ours)
    # Open until this process ends, and in no program that it starts.
    _pipes.append(theirs)
    os.environ[_MARK] = mark
