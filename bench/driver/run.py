"""Runs the driver: the native one where it builds, else the Python one with a note."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.driver.native import DriverUnavailableError, build
from bench.loads import Load
from bench.model import LoadResult

_RUN_TIMEOUT_SECONDS = 180


class DriverError(Exception):
    """A run that did not account for every message; its numbers must not be used."""


@dataclass(frozen=True, slots=True)
class Driver:
    command: tuple[str, ...]
    description: str
    native: bool

    def run(self, load: Load, bootstrap: str, topic: str) -> LoadResult:
        arguments = [*load.arguments(), "--bootstrap", bootstrap, "--topic", topic]
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=_RUN_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired as late:
            raise DriverError(f"{load}: not done after {_RUN_TIMEOUT_SECONDS} s") from late
        if not done.stdout.strip():
            raise DriverError(f"{load}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        result = msgspec.json.decode(done.stdout, type=LoadResult)
        if done.returncode != 0 or result.errors or not result.messages or result.stored != result.messages:
            raise DriverError(
                f"{load}: {result.messages} messages, {result.errors} errors, the broker's offsets say "
                f"{result.stored}; {done.stderr.strip()}"
            )
        return result


def open_driver(directory: Path) -> Driver:
    try:
        binary = build(directory)
    except DriverUnavailableError as reason:
        fallback = (sys.executable, "-m", "bench.driver.fallback")
        note = f"Python driver on confluent-kafka: the client is the limit at small messages ({reason})"
        return Driver(fallback, note, native=False)
    return Driver((str(binary),), "native driver in C on librdkafka", native=True)
