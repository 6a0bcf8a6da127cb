"""What the tests start is started as in the foreground of a terminal, however the run itself was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.environment import ignoring

TESTS = Path(__file__).resolve().parents[2]
RUN = """
import subprocess, sys
from support.environment import make_usual
make_usual()
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode)
"""


def started_by_a_run(look: str, prefix: list[str], **environment: str) -> str:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", RUN, look],
        env={**os.environ, **environment, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.strip()


def test_signals_that_the_run_was_started_to_ignore_are_taken_by_what_it_starts() -> None:
    look = (
        "import signal; print(signal.getsignal(2) is signal.default_int_handler, signal.getsignal(15).name)"
    )
    assert started_by_a_run(look, ignoring(signal.SIGINT, signal.SIGTERM)) == "True SIG_DFL"


def test_a_run_that_outlives_its_terminal_does_so_with_what_it_starts() -> None:
    look = "import signal; print(signal.getsignal(signal.SIGHUP).name)"
    assert started_by_a_run(look, ignoring(signal.SIGHUP)) == "SIG_IGN"


def test_variables_for_other_programs_are_gone_and_the_rest_is_there() -> None:
    names = ["HTTP_PROXY", "https_proxy", "NO_COLOR", "COLUMNS", "MILLSTREAM_BROKER_ID", "PYTHONWARNINGS"]
    kept = ["MILLSTREAM_TEST_DCGM_CSV", "MILLSTREAM_REWRITE", "TZ", "TMPDIR", "PYTHONPATH"]
    look = f"import os; print(*[name for name in {[*names, *kept]!r} if name in os.environ])"
    given = dict.fromkeys([*names, *kept], "1")
    assert started_by_a_run(look, [], **given) == " ".join(kept)
