"""The `millstream` command, in a process of its own each time."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from support.commands import commands


class Cli:
    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "MILLSTREAM_BOOTSTRAP": bootstrap}

    def run(self, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return commands().run(arguments, self.environment, stdin, seconds=600)

    def ok(self, *arguments: str, stdin: bytes = b"") -> bytes:
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return json.loads(self.ok(*arguments, "--json", stdin=stdin))

    def json_lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]

    def fails(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run what must end with exit code 1 and say why in text without a traceback."""
        result = self.run(*arguments, stdin=stdin)
        error = result.stderr.decode()
        assert result.returncode == 1, error
        assert error.startswith("error: ")
        assert "Traceback" not in error
        return error

    def start(self, *arguments: str, prefix: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        """`prefix` is a command that starts the command."""
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "millstream", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
