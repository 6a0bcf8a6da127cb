"""The `millstream` command, run as often as tests like: one process has loaded it, and a copy of it runs each command.

Loading takes ten times as long as most commands do. What a command does with terminals, signals and its start is tested
with processes that are started as a user starts them.
"""

import gc
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_LOADED = (
    *(f"millstream.cli.{name}" for name in ("app", "errors", "output", "topic", "group", "queue", "cluster", "broker")),
    *(f"millstream.cli.{name}" for name in ("produce", "consume", "log", "config", "backup")),
    "millstream.client",
    "millstream.admin",
    "millstream.protocol.codec",
    "confluent_kafka",
)  # fmt: skip
_MOST_BYTES = 1 << 20


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
        )
        theirs.close()

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, seconds: float
    ) -> "subprocess.CompletedProcess[bytes]":
        mine, theirs = socket.socketpair()
        with (
            mine,
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            with theirs:
                request = json.dumps([list(arguments), dict(environment), os.getcwd()]).encode()
                streams = [file.fileno() for file in (given, out, err, theirs)]
                socket.send_fds(self._socket, [request], streams)
            mine.settimeout(seconds)
            code = mine.recv(16)
            assert code, "the process of the commands has ended"
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(list(arguments), int(code), out.read(), err.read())


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
                selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, answer))
                for stream in streams:
                    os.close(stream)


def _run(arguments: list[str], environment: dict[str, str], directory: str, streams: list[int]) -> NoReturn:
    from millstream.cli.main import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(environment)
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
