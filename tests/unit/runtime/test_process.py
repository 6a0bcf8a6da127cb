import os
import platform
import signal
import subprocess
import sys

import pytest

CHILD = """
import sys, time
from millstream.runtime.process import die_with_parent
die_with_parent(int(sys.argv[1]))
print("ready", flush=True)
time.sleep(60)
"""

PARENT = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel feature is Linux's")
def test_a_helper_process_is_gone_when_its_parent_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    parent.wait()
    # The child holds the other end of the pipe: it closes when the child is gone.
    assert parent.stdout.read() == ""
    parent.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel feature is Linux's")
def test_a_helper_process_whose_parent_was_gone_before_it_could_look_ends_at_once() -> None:
    """As when the node is killed right after it started the helper: the orphan must not touch the node's files."""
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    orphan = subprocess.run(
        [sys.executable, "-c", CHILD, gone.stdout.decode().strip()], capture_output=True, check=False
    )
    assert orphan.returncode == -signal.SIGKILL
    assert orphan.stdout == b""


def test_lower_priority_is_for_this_process_only() -> None:
    code = "import os, millstream.runtime.process as p; p.lower_priority(); print(os.nice(0))"
    before = os.nice(0)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == min(before + 10, 19)
    assert os.nice(0) == before


CHURN = """
import resource
from millstream.runtime.process import keep_freed_memory
keep_freed_memory()
bytearray(4 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    bytearray(4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc is left alone")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", CHURN], capture_output=True, text=True, check=True)
    # Each megabyte would be 256 of them.
    assert int(done.stdout) < 4 * 256 * 5


ENDING = """
import asyncio, os, signal, sys
from millstream.runtime.process import told_to_stop
loop = asyncio.new_event_loop()
told_to_stop(loop)
loop.close()
os.kill(os.getpid(), signal.SIGTERM)
print("the reason why it ends", file=sys.stderr)
sys.exit(1)
"""


def test_a_signal_that_comes_when_the_loop_is_closed_hides_no_reason() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "the reason why it ends\n")
