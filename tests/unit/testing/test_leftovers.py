"""A test run that is killed leaves no process behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.waiting import wait_for

TESTS = Path(__file__).resolve().parents[2]
PROGRAM = """
import subprocess, time
from millstream.testing.leftovers import end_with_this_process
end_with_this_process()
child = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def runs(process: int) -> bool:
    """A process that nobody has waited for has no command any more."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False


def test_children_of_a_killed_run_end_with_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(TESTS)}
    ) as run:
        assert run.stdout is not None
        started = [int(run.stdout.readline()) for _ in range(2)]
        assert all(runs(process) for process in started)
        run.send_signal(signal.SIGKILL)
    wait_for(lambda: [process for process in started if runs(process)], lambda left: not left, "their end")
