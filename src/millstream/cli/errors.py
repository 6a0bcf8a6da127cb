"""Turns failures into one line for the user, with cause and remedy, and an exit code."""

import os
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from millstream.client.errors import ClientError

_NO_CLUSTER = "`millstream serve` starts a node, --bootstrap HOST:PORT names another address"
_NO_GROUP = "; see `millstream group list`, or `millstream queue list` for share groups"
_TOO_FEW = "`millstream cluster status` tells whether enough nodes are there"
_DAMAGED = (
    ": what is stored there is damaged. Where other nodes have it, it is repaired within seconds: try again. If not,"
    " the leader's log says where (`corrupt record batch`), and --from OFFSET goes on behind it"
)


class ExitCode(IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command with `message` on standard error and `exit_code`."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandError):
    """The command line contradicts itself or is incomplete."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


class Unreachable(CommandError):
    """No broker answered at the bootstrap address."""

    def __init__(self, bootstrap: str, reason: str) -> None:
        super().__init__(
            f"cannot reach the cluster at {bootstrap}: {reason}; {_NO_CLUSTER}", ExitCode.UNREACHABLE
        )


class NoAnswer(CommandError):
    """A node answers, but the request needs others: the controller, a leader, a coordinator."""

    def __init__(self, action: str, reason: str) -> None:
        super().__init__(f"{action}: {reason}; {_TOO_FEW}", ExitCode.UNREACHABLE)


class ReaderGone(Exception):
    """The reader of our standard output has closed it, as `head` does; there is nothing left to do."""


def enable_tracebacks() -> None:
    """Show tracebacks from here on, in this process and its children."""
    os.environ["MILLSTREAM_DEBUG"] = "1"


def debugging() -> bool:
    return os.environ.get("MILLSTREAM_DEBUG", "") not in {"", "0", "false"}


def run_guarded(call: Callable[[], object]) -> int:
    """Run a command and turn its result or failure into an exit code; nothing escapes."""
    try:
        result = call()
        sys.stdout.flush()
    except SystemExit as exit_:  # how typer ends: after help, wrong usage and Exit
        return exit_code_of(exit_)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except (ReaderGone, BrokenPipeError):
        silence_stdout()
        return ExitCode.OK
    except Exception as error:  # noqa: BLE001 - the last line of defence, and --debug shows it
        return report(error)
    return result if isinstance(result, int) else ExitCode.OK


def exit_code_of(exit_: SystemExit) -> int:
    if isinstance(exit_.code, str):
        print_error(exit_.code)
        return ExitCode.FAILURE
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    return exit_.code or ExitCode.OK


def report(error: Exception) -> int:
    from millstream.client import errors as client_errors

    if debugging():
        traceback.print_exception(error)
    if isinstance(error, CommandError):
        print_error(str(error))
        return error.exit_code
    if isinstance(error, client_errors.ClientError):
        message, code = message_and_code(error)
        print_error(message)
        return code
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{error.strerror or error}")
        return ExitCode.FAILURE
    hint = "" if debugging() else "; run `millstream --debug ...` for the traceback"
    print_error(f"{type(error).__name__}: {one_line(str(error))}{hint}")
    return ExitCode.FAILURE


def message_and_code(error: "ClientError") -> "tuple[str, ExitCode]":
    """The message for a failure of the client, with the remedy, and the exit code."""
    from millstream.client import errors

    hints = (
        (errors.ConnectionFailedError, f"; {_NO_CLUSTER}", ExitCode.UNREACHABLE),
        ((errors.TimedOutError, errors.NotAvailableError), f"; {_TOO_FEW}", ExitCode.UNREACHABLE),
        (errors.ConfigurationError, "", ExitCode.USAGE),
        (errors.UnknownPartitionError, "", ExitCode.FAILURE),
        (errors.UnknownTopicError, "; see `millstream topic list`", ExitCode.FAILURE),
        (errors.UnknownGroupError, _NO_GROUP, ExitCode.FAILURE),
        (errors.ClientError, "", ExitCode.FAILURE),
    )
    hint, code = next((hint, code) for kind, hint, code in hints if isinstance(error, kind))
    return one_line(str(error)) + hint, code


def print_error(message: str) -> None:
    prefix = "\x1b[1;31merror:\x1b[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else "error:"
    sys.stderr.write(f"{prefix} {message}\n")


def one_line(text: str) -> str:
    return " ".join(text.split())


def silence_stdout() -> None:
    """Redirect buffered output to /dev/null, or Python complains about the closed pipe at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def kafka_failure(action: str, error: "KafkaError", bootstrap: str) -> CommandError:
    """The command error for an error of the cluster, or of the connection to it."""
    from confluent_kafka import KafkaError as Codes

    code, text = error.code(), one_line(error.str())
    if code in {Codes._TRANSPORT, Codes._ALL_BROKERS_DOWN, Codes._RESOLVE}:  # noqa: SLF001
        return Unreachable(bootstrap, text)
    if code == Codes._TIMED_OUT:  # noqa: SLF001
        return NoAnswer(action, text)
    advice = _DAMAGED if code == Codes.INVALID_MSG else ""
    return CommandError(f"{action}: {text} ({error.name()}){advice}")
