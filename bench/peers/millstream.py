"""Our broker, started as a user starts it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from bench.machine import Usage, usage
from bench.model import Peer
from bench.peers import Durability, PeerError
from millstream.testing.processes import NodeFailed, NodeProcess

READY_TIMEOUT_SECONDS = 120.0
_STOP_TIMEOUT_SECONDS = 120.0
_ADMIN_TIMEOUT_SECONDS = 120.0
SOURCE = Path(__file__).resolve().parents[2] / "src"
# What a run wrote must be gone before the next run, not a minute later.
_TOPIC_CONFIG = {"file.delete.delay.ms": "0"}


class Millstream:
    kind = Peer.MILLSTREAM

    def __init__(
        self,
        data: Path,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        source: Path = SOURCE,
    ) -> None:
        """Spawns the broker and returns at once; `wait_ready` or a client tells when it serves.

        `settings` are by the names of the configuration file, `arguments` further ones of `millstream serve`.
        `source` is the folder that its code is taken from.
        """
        self._admin: AdminClient | None = None
        self.data = data
        self._node = NodeProcess(
            "the broker",
            data.with_name(f"{data.name}.log"),
            [*_command(data, port), *arguments],
            {**environment(source), **_as_variables(settings or {})},
        )
        self.spawned_at = time.perf_counter()
        self._spawned_s = time.time()
        self._node.launch()

    @property
    def bootstrap(self) -> str:
        return str(self._ready_line()["listen"])

    @property
    def http_url(self) -> str:
        return f"http://{self._ready_line()['http']}"

    def wait_ready(self) -> float:
        """Seconds from spawn to the log line that says the broker is ready."""
        said_at = datetime.fromisoformat(self._ready_line()["timestamp"])
        return said_at.timestamp() - self._spawned_s

    def _ready_line(self) -> dict[str, Any]:
        try:
            return self._node.wait_until_ready(READY_TIMEOUT_SECONDS)
        except NodeFailed as failed:
            raise PeerError(str(failed)) from failed

    def check_alive(self) -> None:
        if not self._node.is_running:
            raise PeerError(f"the broker ended with status {self._node.exit_code}: {self._log_tail()}")

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
        return usage(self._node.pid)

    def stop(self) -> None:
        """A clean stop; what does not end in time is killed and reported."""
        self._admin = None
        if self._node.process is None:
            # It has ended before, which was told then.
            return
        try:
            self._node.stop(_STOP_TIMEOUT_SECONDS)
        except NodeFailed as failed:
            raise PeerError(str(failed)) from failed

    def kill(self) -> None:
        """As a failing machine does it."""
        self._admin = None
        self._node.kill()

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return self._admin

    def _ask_admin(self, what: str, result: Callable[[float], object]) -> None:
        try:
            result(_ADMIN_TIMEOUT_SECONDS)
        except KafkaException as refused:
            raise PeerError(f"{what}: {refused}; {self._log_tail()}") from refused

    def _log_tail(self) -> str:
        return self._node.log_tail(5).replace("\n", " | ") or "it logged nothing"


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


def environment(source: Path = SOURCE) -> dict[str, str]:
    """Runs from a checkout too, where the package is not installed."""
    paths = [str(source), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
