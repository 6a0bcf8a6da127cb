"""`make demo`, as far as it is a program: a node starts, a real client writes and reads, and it ends by itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def test_demo_shows_messages_that_went_through_a_node() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        env={**os.environ, "DEMO_SECONDS": "3"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"([\d,]+) messages written and acknowledged, ([\d,]+) read back", done.stdout)
    assert said is not None, done.stdout
    assert said[1] == said[2] != "0"
