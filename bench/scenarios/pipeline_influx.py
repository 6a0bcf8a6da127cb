"""Debian's InfluxDB 1.x for a benchmark, and a process that does nothing but post to it."""

import http.client
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from bench.peers import PeerError
from bench.scenarios import pipeline_data
from millstream.runtime.ports import ReservedPorts

POST_POINTS = 5_000
_START_TIMEOUT_SECONDS = 60.0
_STOP_TIMEOUT_SECONDS = 60.0
_REQUEST_TIMEOUT_SECONDS = 60.0
_CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
  dir = "{directory}/meta"
[data]
  dir = "{directory}/data"
  wal-dir = "{directory}/wal"
  query-log-enabled = false
[http]
  bind-address = "127.0.0.1:{http}"
  log-enabled = false
[monitor]
  store-enabled = false
[continuous_queries]
  enabled = false
[logging]
  level = "warn"
"""


@dataclass(frozen=True, slots=True)
class Influx:
    port: int

    def store_url(self, database: str) -> str:
        return f"influx:http://127.0.0.1:{self.port}?db={database}"

    def execute(self, statement: str) -> None:
        status = self._post("/query", urlencode({"q": statement}).encode())
        if status != 200:
            raise PeerError(f"InfluxDB answered {status} to {statement}")

    def post(self, database: str, bodies: Sequence[bytes]) -> float:
        """Seconds that one process takes to write them, one after the other on one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_REQUEST_TIMEOUT_SECONDS)
        path = f"/write?{urlencode({'db': database, 'precision': 'u'})}"
        began = time.perf_counter()
        for body in bodies:
            connection.request("POST", path, body)
            response = connection.getresponse()
            said = response.read()
            if response.status != 204:
                raise PeerError(f"InfluxDB answered {response.status} to a write: {said[:200]!r}")
        seconds = time.perf_counter() - began
        connection.close()
        return seconds

    def _post(self, path: str, body: bytes) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_REQUEST_TIMEOUT_SECONDS)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"})
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()


def is_available() -> bool:
    return shutil.which("influxd") is not None


@contextmanager
def running(directory: Path) -> Iterator[Influx]:
    program = shutil.which("influxd")
    if program is None:
        raise PeerError("influxd is not installed")
    reserved = ReservedPorts(2)
    port, rpc_port = reserved.ports
    config = directory / "influxdb.conf"
    config.write_text(_CONFIG.format(directory=directory, rpc=rpc_port, http=port))
    environment = {"HOME": str(directory), "PATH": os.environ.get("PATH", "")}
    with (directory / "influxd.log").open("wb") as log:
        process = subprocess.Popen([program, "-config", str(config)], stdout=log, stderr=log, env=environment)
    try:
        _wait_until_it_answers(process, port, directory)
        yield Influx(port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reserved.close()


def bodies(count: int) -> list[bytes]:
    """The lines of all points, in posts."""
    from millstream.pipeline.stores.influx.lines import point_lines

    text = point_lines(pipeline_data.points(count)).text
    return [
        "".join(text.slice(first, POST_POINTS).to_pylist()).encode() for first in range(0, count, POST_POINTS)
    ]


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, directory: Path) -> None:
    deadline = time.perf_counter() + _START_TIMEOUT_SECONDS
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.request("GET", "/ping")
            connection.getresponse().read()
        except OSError:
            if process.poll() is not None or time.perf_counter() > deadline:
                last = (directory / "influxd.log").read_text(errors="replace")[-300:]
                raise PeerError(f"influxd does not answer: {last}") from None
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
