"""Debian's InfluxDB 1.x in a process of its own, on free ports, in a directory of the test's."""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from millstream.runtime.ports import ReservedPorts

START_TIMEOUT_S = 120.0

_CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
  dir = "{directory}/meta"
  logging-enabled = false
[data]
  dir = "{directory}/data"
  wal-dir = "{directory}/wal"
  query-log-enabled = false
  max-values-per-tag = 0
[http]
  bind-address = "127.0.0.1:{http}"
  log-enabled = false
  max-body-size = {max_body_bytes}
[logging]
  level = "warn"
  suppress-logo = true
[monitor]
  store-enabled = false
[ifql]
  enabled = false
[continuous_queries]
  enabled = false
"""


def influxd_path() -> str | None:
    return shutil.which("influxd")


class InfluxProcess:
    """`start` after `stop` or `kill` is a restart with the same data on the same address."""

    def __init__(self, directory: Path, *, max_body_bytes: int = 25_000_000) -> None:
        self.directory = directory
        self._reserved = ReservedPorts(2)
        self.port, rpc_port = self._reserved.ports
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "influxdb.conf").write_text(
            _CONFIG.format(directory=directory, rpc=rpc_port, http=self.port, max_body_bytes=max_body_bytes)
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "InfluxProcess":
        program = influxd_path()
        assert program is not None, "influxd is not installed"
        with (self.directory / "influxd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "-config", str(self.directory / "influxdb.conf")],
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(self.directory)},
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, f"influxd ended at once: {self.log_end()}"
            assert time.monotonic() < deadline, f"influxd does not answer: {self.log_end()}"
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """End it as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(how)
        try:
            self._process.wait(90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(90)
        self._process = None

    def query(self, statement: str, database: str = "") -> list[dict[str, Any]]:
        """The series of the first result."""
        body = urllib.parse.urlencode({"q": statement, "db": database, "epoch": "u"}).encode()
        with urllib.request.urlopen(f"{self.url}/query", body, timeout=90) as answer:
            result = json.load(answer)["results"][0]
        assert "error" not in result, result["error"]
        return result.get("series", [])

    def write(self, lines: str, database: str) -> tuple[int, str]:
        """Post lines as they are; the status and what the server said."""
        target = f"{self.url}/write?" + urllib.parse.urlencode({"db": database, "precision": "u"})
        try:
            with urllib.request.urlopen(target, lines.encode(), timeout=90) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def log_end(self) -> str:
        return (self.directory / "influxd.log").read_text(errors="replace")[-2000:]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ping", timeout=1) as answer:
                return bool(answer.status == 204)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
