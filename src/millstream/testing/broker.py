"""A real broker for tests, in a process of its own."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream.runtime.ports import ReservedPorts

Topics = Mapping[str, "int | Mapping[str, object]"] | Iterable[str]
"""Names; names and partitions; or names and settings, `{"events": {"partitions": 3, "retention.ms": 1000}}`."""

_STOP_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.005
_SECTIONS = ("broker", "cluster", "storage", "performance", "replication", "http", "proxy", "log")
# Without it a group's first member waits three seconds for company.
_DEFAULTS: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}


class BrokerFailed(RuntimeError):
    """The broker did not start or stop as it should; the message ends with the end of its log."""


class EmbeddedBroker:
    """A Millstream broker on a free port, with an empty data directory that is removed afterwards.

        with EmbeddedBroker(topics={"events": 3}) as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    Any Kafka client can use it. The broker ends with the program that started it, however that ends.

    `topics` exist from the start. `settings` are those of the configuration file, `{"storage.segment_size": "1MB"}`,
    or Kafka's, `{"log.retention.ms": 1000}`. `directory` is kept when it is given.
    """

    def __init__(
        self,
        *,
        topics: Topics = (),
        settings: Mapping[str, object] | None = None,
        directory: Path | str | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        self.topics = _topics(topics)
        self.settings = {**_DEFAULTS, **(settings or {})}
        self._start_timeout_s = start_timeout_s
        self._given_directory = None if directory is None else Path(directory)
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved: ReservedPorts | None = None
        self._listen = self._http = ""

    @property
    def bootstrap_servers(self) -> str:
        """host:port, as every client takes it."""
        self._running()
        return self._listen

    @property
    def http_url(self) -> str:
        """Where /metrics and /health are."""
        self._running()
        return f"http://{self._http}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def data_dir(self) -> Path:
        return self._home() / "data"

    def start(self) -> Self:
        """Start, and return when clients can connect. After `kill` or `stop` it takes the same addresses again."""
        if self._process is not None:
            raise BrokerFailed("the broker is running already")
        if self._directory is None:
            self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix="millstream-"))
            self._directory.mkdir(parents=True, exist_ok=True)
        if self._reserved is None:
            self._reserved = ReservedPorts(2)
            self._listen, self._http = self._reserved.addresses
        self._write_settings()
        with self._log_file().open("ab") as log:
            position = log.tell()
            # The pipe is never written to; its end tells the broker that we are gone.
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(),
                # Ctrl-C is for the tests, which then stop the broker.
                start_new_session=True,
            )
        self._wait_until_ready(self._process, position)
        return self

    def stop(self) -> None:
        """Stop cleanly. The data stay until `close`, and `start` continues with them."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            exit_code = process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(
                f"the broker did not stop within {_STOP_TIMEOUT_S:.0f} s\n{self.log_tail()}"
            ) from None
        self._forget(process)
        if exit_code != 0:
            raise BrokerFailed(f"the broker stopped with exit code {exit_code}\n{self.log_tail()}")

    def kill(self) -> None:
        """End the broker as a crash would."""
        process = self._running()
        process.kill()
        process.wait()
        self._forget(process)

    def restart(self) -> Self:
        """Stop cleanly and start again, on the same addresses and with the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End the broker, if it runs, and remove what it has stored."""
        try:
            if self._process is not None:
                self.stop()
        finally:
            if self._reserved is not None:
                self._reserved.close()
                self._reserved = None
            if self._given_directory is None and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def create_topics(self, topics: Topics) -> None:
        """Create topics while the broker runs; those that exist already are left as they are."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        wanted = []
        for name, given in _topics(topics).items():
            configs = {key: str(value) for key, value in given.items() if key != "partitions"}
            wanted.append(NewTopic(name, int(str(given.get("partitions", 1))), config=configs))
        for future in admin.create_topics(wanted).values() if wanted else ():
            try:
                future.result(self._start_timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def log_tail(self, lines: int = 50) -> str:
        """The end of the broker's log."""
        if self._directory is None or not self._log_file().exists():
            return ""
        return "\n".join(self._log_file().read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._abandon()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the log of the embedded broker ends with:\n{self.log_tail()}")
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _command(self) -> list[str]:
        removed = "" if self._given_directory is not None else str(self._home())
        # -P: modules in the directory of the tests must not take the place of the broker's.
        command = [sys.executable, "-P", "-m", "millstream.testing.guarded_serve", removed, "serve"]
        command += ["--data", str(self.data_dir), "--listen", self._listen, "--http", self._http]
        return [*command, "--config", str(self._home() / "settings.yaml"), "--log-format", "json"]

    def _write_settings(self) -> None:
        """JSON is YAML too, and needs no library here."""
        sections: dict[str, dict[str, object]] = {}
        for name, value in self.settings.items():
            section, _, key = name.partition(".")
            # Kafka has names such as log.retention.ms; none of our keys has a dot.
            if section not in _SECTIONS or "." in key:
                section, key = "kafka", name
            sections.setdefault(section, {})[key] = value
        (self._home() / "settings.yaml").write_text(json.dumps({**sections, "topics": self.topics}, indent=1))

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]", position: int) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            if self._is_ready(position):
                return
            if process.poll() is not None:
                self._forget(process)
                raise BrokerFailed(f"the broker ended with exit code {process.returncode}\n{self.log_tail()}")
            time.sleep(_LOOK_EVERY_S)
        self.kill()
        raise BrokerFailed(
            f"the broker was not ready within {self._start_timeout_s:.0f} s\n{self.log_tail()}"
        )

    def _is_ready(self, position: int) -> bool:
        with self._log_file().open("rb") as log:
            log.seek(position)
            return any(
                b'"ready"' in line and line.endswith(b"\n") and json.loads(line).get("event") == "ready"
                for line in log
            )

    def _home(self) -> Path:
        if self._directory is None:
            raise BrokerFailed("the broker was not started")
        return self._directory

    def _log_file(self) -> Path:
        return self._home() / "broker.log"

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise BrokerFailed("the broker is not running; start() it, or use it in a `with` block")
        return self._process

    def _forget(self, process: "subprocess.Popen[bytes]") -> None:
        if process.stdin is not None:
            process.stdin.close()
        self._process = None

    def _abandon(self) -> None:
        if self._process is not None:
            self.kill()
        self.close()


def _topics(topics: Topics) -> dict[str, dict[str, object]]:
    if isinstance(topics, str):
        topics = (topics,)
    if not isinstance(topics, Mapping):
        return {name: {"partitions": 1} for name in topics}
    return {
        name: {"partitions": given} if isinstance(given, int) else dict(given)
        for name, given in topics.items()
    }


def _environment() -> dict[str, str]:
    """Ours, without the settings it may hold for another broker, and with what the broker's allocator wants."""
    from millstream.cli.main import ALLOCATOR_SETTINGS

    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    return {**ALLOCATOR_SETTINGS, **inherited}
