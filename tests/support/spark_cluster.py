"""A real Spark cluster on loopback: a standalone master and its workers, each a process of its own."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pyspark

from millstream.runtime.ports import ReservedPorts
from millstream.spark.java import java_home

_START_TIMEOUT_S = 300.0
_REGISTERED = re.compile(r"Registering worker")


class StandaloneCluster:
    """`with StandaloneCluster(directory) as cluster: session(master=cluster.master)`."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._reserved = ReservedPorts()
        (self._port,) = self._reserved.ports

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> "StandaloneCluster":
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start("master", "master.Master", "--host", "127.0.0.1", "--port", str(self._port))
            self._wait(self._listens, "the master listens")
            for number in range(self._workers):
                self._start(
                    f"worker-{number}", "worker.Worker", self.master, "--host", "127.0.0.1", "--cores", "1",
                    "--memory", "1g", "--work-dir", str(self._directory / f"work-{number}"),
                )  # fmt: skip
            self._wait(self._are_registered, "the workers are registered")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def executors_of(self, worker: int) -> int:
        """How many executors the worker has run."""
        return len(list((self._directory / f"work-{worker}").glob("app-*/*/stderr")))

    def log(self, name: str = "master") -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, program: str, *arguments: str) -> None:
        spark_home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home),
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        command = [str(spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", *arguments]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--webui-port", "0"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )
            )  # fmt: skip

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not condition():
            assert all(process.poll() is None for process in self._processes), f"{what}: {self.log()[-2000:]}"
            assert time.monotonic() < deadline, f"{what}: not in time\n{self.log()[-2000:]}"
            time.sleep(0.1)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _are_registered(self) -> bool:
        return len(_REGISTERED.findall(self.log())) >= self._workers

    def _end(self) -> None:
        # A worker's executors are children in its process group.
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
