"""What whoever runs the tests has set for other programs, and no test means: signals, variables, and few open files.

All are inherited. So they are put right once in each process that runs tests, and all that it starts has them right,
whoever starts it and by which means. Locale, time zone, umask, hard limits and directories are left as they are: with
these the program itself has to cope.
"""

import os
import re
import resource
import signal
import sys

_NO_TEST_S = re.compile(
    r"""
    MILLSTREAM_(?!TEST_|CRASH_EXAMPLES|REWRITE).* | DEMO_.*  # settings of other nodes
  | (http|https|ftp|all|no)_proxy                # every server that a test asks is on this machine
  | PYTHON(?!PATH|HOME|USERBASE|PYCACHEPREFIX|PLATLIBDIR).*
  | COLUMNS | LINES | NO_COLOR | FORCE_COLOR | CLICOLOR.* | PY_COLORS | TTY_.* | TERM | COLORTERM | _?TYPER_.*
  | CI | GITHUB_ACTIONS                          # some libraries take them for a terminal with colours
  | INFLUX.*                                     # settings of other databases
  | _?JAVA_(TOOL_)?OPTIONS | SPARK_.* | PYSPARK_.* | HADOOP_.*
    """,
    re.VERBOSE | re.IGNORECASE,
)
# SIGHUP stays ignored where `nohup` had it so: a run that is to outlive its terminal does, with all that it starts.
_USED_BY_TESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD, signal.SIGALRM)


def ignoring(*signals: signal.Signals) -> list[str]:
    """Put before a command, it starts it with these signals ignored and no others, as a shell does with its jobs."""
    program = "import os, signal, sys\n"
    program += f"signal.signal({int(signal.SIGHUP)}, signal.SIG_DFL)\n"
    program += "".join(f"signal.signal({int(number)}, signal.SIG_IGN)\n" for number in signals)
    return [sys.executable, "-c", program + "os.execvp(sys.argv[1], sys.argv[1:])"]


def make_usual() -> None:
    for name in [name for name in os.environ if _NO_TEST_S.fullmatch(name)]:
        del os.environ[name]
    # As many open files as this user may have; what he usually has is a courtesy to old programs.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    take_signals()


def take_signals() -> None:
    """As in the foreground of a terminal: in a script's background job SIGINT is ignored, by all that it starts too.

    A signal with a handler is one with the default action for a program that is started from here.
    """
    for number in _USED_BY_TESTS:
        if signal.getsignal(number) is signal.SIG_IGN:
            interrupts = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupts else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _USED_BY_TESTS)
