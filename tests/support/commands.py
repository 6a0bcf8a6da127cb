"""The `millstream` command, run as often as tests like: one process has loaded it, and a copy of it runs each command.

Loading takes ten times as long as most commands do, and most of what the start of a node does. What a command does with
terminals, signals and its start is tested with processes that are started as a user starts them.
"""

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from millstream.cli.main import ALLOCATOR_SETTINGS

_LOADED = (
    *(f"millstream.cli.{name}" for name in ("app", "errors", "output", "topic", "group", "queue", "cluster", "broker")),
    *(f"millstream.cli.{name}" for name in ("produce", "consume", "log", "config", "backup")),
    "millstream.client",
    "millstream.admin",
    "millstream.protocol.codec",
    "confluent_kafka",
    *("millstream.cli.serve", "millstream.broker.process", "millstream.gateway.gateway", "millstream.mqtt.attach"),
)  # fmt: skip
_MOST_BYTES = 1 << 20
_MOST_FILES = 4096


class Process:
    """A command that runs, with what tests use of `subprocess.Popen`."""

    stdin = None

    def __init__(self, arguments: Sequence[str], answers: socket.socket) -> None:
        self.args, self._answers = list(arguments), answers
        self.pid = int(self._answer(None))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            with suppress(BlockingIOError):
                self._ended(self._answer(0))
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            try:
                self._ended(self._answer(timeout))
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _answer(self, seconds: float | None) -> bytes:
        self._answers.settimeout(seconds)
        answer = self._answers.recv(16)
        assert answer, "the process of the commands has ended"
        return answer

    def _ended(self, code: bytes) -> None:
        self.returncode = int(code)
        self._answers.close()


class Commands:
    """The process that has loaded it, and its socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Ends when this process has, because the socket has no other end then.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.commands", str(theirs.fileno())],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            # As a node that is started by itself has them.
            env={**ALLOCATOR_SETTINGS, **os.environ},
        )
        theirs.close()

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: int, stdout: int, stderr: int
    ) -> Process:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            request = json.dumps([list(arguments), dict(environment), os.getcwd()]).encode()
            socket.send_fds(self._socket, [request], [stdin, stdout, stderr, theirs.fileno()])
        return Process(arguments, mine)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, seconds: float
    ) -> "subprocess.CompletedProcess[bytes]":
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            process = self.start(arguments, environment, given.fileno(), out.fileno(), err.fileno())
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(process.args, code, out.read(), err.read())


@cache
def commands() -> Commands:
    """One for all tests of a process."""
    return Commands()


def _serve(requests: socket.socket) -> None:
    for name in _LOADED:
        import_module(name)
    # Not looked at again by the copies, which would copy its memory.
    gc.freeze()
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    child, answer = key.data
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    _, status = os.waitpid(child, 0)
                    with suppress(OSError):
                        os.write(answer, b"%d" % os.waitstatus_to_exitcode(status))
                    os.close(answer)
                    continue
                request, handed, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
                if not request:
                    return
                *streams, answer = handed
                child = os.fork()
                if child == 0:
                    _run(*json.loads(request), streams)
                with suppress(OSError):
                    os.write(answer, b"%d" % child)
                selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, answer))
                for stream in streams:
                    os.close(stream)


def _run(arguments: list[str], environment: dict[str, str], directory: str, streams: list[int]) -> NoReturn:
    from millstream.cli.main import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, _MOST_FILES)
    os.environ.clear()
    # A node without these would start itself again, which a copy cannot.
    os.environ.update({**ALLOCATOR_SETTINGS, **environment})
    os.chdir(directory)
    sys.argv = ["millstream", *arguments]
    code = 1
    try:
        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Taking all modules apart takes longer than the command did.
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
