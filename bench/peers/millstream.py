"""Our broker, started as a user starts it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from bench.machine import Usage, usage
from bench.model import Peer
from bench.peers import Durability, PeerError

READY_TIMEOUT_SECONDS = 120.0
_STOP_TIMEOUT_SECONDS = 120.0
_ADMIN_TIMEOUT_SECONDS = 120.0
_REPOSITORY = Path(__file__).resolve().parents[2]
# What a run wrote must be gone before the next run, not a minute later.
_TOPIC_CONFIG = {"file.delete.delay.ms": "0"}


class _LogLine(msgspec.Struct, frozen=True):
    event: str = ""
    listen: str = ""
    http: str = ""


class Millstream:
    kind = Peer.MILLSTREAM

    def __init__(
        self,
        data: Path,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Spawns the broker and returns at once; `wait_ready` or a client tells when it serves.

        `settings` are by the names of the configuration file, `arguments` further ones of `millstream serve`.
        """
        self._last_lines: deque[str] = deque(maxlen=20)
        self._ready = threading.Event()
        self._ready_line = _LogLine()
        self._ready_at = 0.0
        self._admin: AdminClient | None = None
        self.data = data
        self.spawned_at = time.perf_counter()
        self._process = subprocess.Popen(
            [*_command(data, port), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**environment(), **_as_variables(settings or {})},
        )
        self._reader = threading.Thread(target=self._follow_log, daemon=True)
        self._reader.start()

    @property
    def bootstrap(self) -> str:
        return self._ready_line.listen

    @property
    def http_url(self) -> str:
        return f"http://{self._ready_line.http}"

    def wait_ready(self) -> float:
        """Seconds from spawn to the log line that says the broker is ready."""
        deadline = time.perf_counter() + READY_TIMEOUT_SECONDS
        while not self._ready.wait(0.1):
            self.check_alive()
            if time.perf_counter() > deadline:
                raise PeerError(
                    f"the broker was not ready after {READY_TIMEOUT_SECONDS:.0f} s: {self._log_tail()}"
                )
        return self._ready_at - self.spawned_at

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            self._reader.join(1)
            raise PeerError(f"the broker ended with status {self._process.returncode}: {self._log_tail()}")

    def create_topic(self, name: str, partitions: int, durability: Durability) -> None:
        config = {**_TOPIC_CONFIG, **durability.topic_config}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        self._ask_admin(f"creating topic {name}", self._client().create_topics([topic])[name].result)

    def configure_topic(self, name: str, durability: Durability) -> None:
        """A topic that is there already."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in durability.topic_config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        if entries:
            changed = self._client().incremental_alter_configs([resource])[resource]
            self._ask_admin(f"changing topic {name}", changed.result)

    def delete_topic(self, name: str) -> None:
        self._ask_admin(f"deleting topic {name}", self._client().delete_topics([name])[name].result)

    def usage(self) -> Usage:
        return usage(self._process.pid)

    def stop(self) -> None:
        """A clean stop; what does not end in time is killed and reported."""
        self._admin = None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as late:
            self._process.kill()
            self._process.wait()
            raise PeerError(f"the broker did not stop within {_STOP_TIMEOUT_SECONDS:.0f} s") from late
        finally:
            self._let_go()

    def kill(self) -> None:
        """As a failing machine does it."""
        self._admin = None
        self._process.kill()
        self._process.wait()
        self._let_go()

    def _let_go(self) -> None:
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return self._admin

    def _ask_admin(self, what: str, result: Callable[[float], object]) -> None:
        try:
            result(_ADMIN_TIMEOUT_SECONDS)
        except KafkaException as refused:
            raise PeerError(f"{what}: {refused}; {self._log_tail()}") from refused

    def _follow_log(self) -> None:
        for line in self._process.stdout or ():
            self._last_lines.append(line.rstrip())
            if not self._ready.is_set() and '"ready"' in line:
                self._read_ready_line(line)

    def _read_ready_line(self, line: str) -> None:
        try:
            parsed = msgspec.json.decode(line, type=_LogLine)
        except msgspec.DecodeError:
            return
        if parsed.event == "ready":
            self._ready_at = time.perf_counter()
            self._ready_line = parsed
            self._ready.set()

    def _log_tail(self) -> str:
        return " | ".join(list(self._last_lines)[-5:]) or "it logged nothing"


def is_available() -> bool:
    done = subprocess.run(
        [sys.executable, "-c", "import millstream.cli"], capture_output=True, check=False, env=environment()
    )
    return done.returncode == 0


def _command(data: Path, port: int) -> list[str]:
    listen = ["--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0"]
    return [sys.executable, "-m", "millstream", "serve", "--data", str(data), *listen, "--log-format", "json"]


def _as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"MILLSTREAM_{name.replace('.', '_').upper()}": value for name, value in settings.items()}


def environment() -> dict[str, str]:
    """Runs from a checkout too, where the package is not installed."""
    paths = [str(_REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
