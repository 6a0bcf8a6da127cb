"""Kills everything that tests and benchmarks start when their process ends, even by SIGKILL.

A watcher process waits for the end of this one, and then kills all processes that carry this one's mark in their
environment, however they were started and however many parents are in between.
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
    """Cover all processes started from now on."""
    if _pipes:
        return
    mark = f"{os.getpid()}-{uuid.uuid4()}"
    ours, theirs = os.pipe()
    nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    # In its own session: a signal to all processes of a run spares it.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _WATCH, f"{_MARK}={mark}"],
        {name: value for name, value in os.environ.items() if name != _MARK},
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, 0), *nowhere],
        setsid=True,
    )
    os.close(ours)
    # Open until this process ends, and not inherited by programs it starts.
    _pipes.append(theirs)
    os.environ[_MARK] = mark
