"""The pipeline's job in a process of its own, and a store to look into afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.open import open_store

# A JVM that lives for a minute spends most of its time in optimizing compilers.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SMALL = (
    "spark.sql.shuffle.partitions=2",
    "spark.driver.memory=1g",
    f"spark.driver.extraJavaOptions={_QUICK_JVM}",
    f"spark.executor.extraJavaOptions={_QUICK_JVM}",
)
# Rollups of windows that go on changing are computed again and again; a few times show it.
_SELDOM = {"MILLSTREAM_PIPELINE_ROLLUP_EVERY": "15s"}


@contextmanager
def opened_store(url: str, data: Path) -> Iterator[Store]:
    store = open_store(url, data=data)
    try:
        yield store
    finally:
        store.close()


class PipelineProcess:
    """`millstream pipeline run`, with everything that Spark starts in its process group."""

    def __init__(self, data: Path, bootstrap: str, *arguments: str, master: str = "local[2]") -> None:
        self.data = data
        self.log_file = data.parent / f"{data.name}.log"
        self._command = [
            sys.executable, "-m", "millstream", "pipeline", "run", "--bootstrap", bootstrap, "--data", str(data),
            "--master", master, *(word for each in _SMALL for word in ("--conf", each)), *arguments,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "PipelineProcess":
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env={**os.environ, **_SELDOM}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return self

    def kill(self) -> None:
        """End driver and JVM as a power cut would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """As an operator would; the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def wait(self, seconds: float = 600.0) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the pipeline did not end\n{self.log_end()}") from None
        self._process = None
        return code

    def status(self) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads((self.data / "status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return document

    def wait_until(self, wanted: Callable[[dict[str, Any]], bool], what: str, seconds: float = 600.0) -> None:
        """Until its status is as wanted; fails when the process ends before."""
        deadline = time.monotonic() + seconds
        while not wanted(self.status()):
            assert self._process is not None
            assert self._process.poll() is None, f"the pipeline ended early\n{self.log_end()}"
            assert time.monotonic() < deadline, f"{what}: not in time\n{self.status()}\n{self.log_end()}"
            time.sleep(0.1)

    def log_end(self) -> str:
        return self.log_file.read_text(errors="replace")[-4000:]
