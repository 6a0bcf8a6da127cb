"""MQTT brokers of others, as Debian packages them: mosquitto, and RabbitMQ with its MQTT plug-in.

This system's, or newer ones in a folder with a system of their own, which BENCH_BROKERS_ROOT names (`debootstrap` makes
one): they are started there by chroot, which only root may do.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from bench.machine import Usage, usage
from bench.peers import PeerError

_READY_SECONDS = 120.0
_STOP_SECONDS = 60.0
_RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_MOSQUITTO = "/usr/sbin/mosquitto"

Address = tuple[str, int]


def _root() -> Path:
    return Path(os.environ.get("BENCH_BROKERS_ROOT", "/"))


def _has(program: str) -> bool:
    return (_root() / program.lstrip("/")).exists()


class _Home:
    """A folder that the broker sees too: `path` here, `seen` where it runs."""

    def __init__(self, data: Path) -> None:
        root = _root()
        self._is_apart = root != Path("/")
        self.path = Path(tempfile.mkdtemp(dir=root / "tmp")) if self._is_apart else data
        self.seen = Path("/") / self.path.relative_to(root)
        self.prefix = ["chroot", str(root)] if self._is_apart else []

    def remove(self) -> None:
        if self._is_apart:
            shutil.rmtree(self.path, ignore_errors=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


class _Process:
    """A broker in a process of its own that listens on `port`."""

    def __init__(self, command: list[str], home: _Home, port: int, env: dict[str, str]) -> None:
        self.address: Address = ("127.0.0.1", port)
        self._home = home
        self._log = home.path / "log.txt"
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                [*home.prefix, *command],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=home.path,
                env={**os.environ, **env},
                # Not a session: Linux would give it a share of the processors of its own.
                process_group=0,
            )
        try:
            self._wait_ready()
        except PeerError:
            self.stop()
            raise

    def _wait_ready(self) -> None:
        deadline = time.perf_counter() + _READY_SECONDS
        while time.perf_counter() < deadline:
            if self._process.poll() is not None:
                raise PeerError(f"the broker ended: {self._log.read_text(errors='replace')[-500:]}")
            try:
                socket.create_connection(self.address, timeout=1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise PeerError(f"the broker did not listen after {_READY_SECONDS:.0f} s")

    def usage(self) -> Usage:
        return usage(self._process.pid)

    def stop(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._home.remove()


class Mosquitto(_Process):
    """Everything in memory: `persistence` writes a snapshot now and then, and acknowledges before."""

    name = "mosquitto"
    package = "mosquitto"
    durability = "memory only"

    def __init__(self, data: Path) -> None:
        port, home = free_port(), _Home(data)
        config = home.path / "mosquitto.conf"
        # Without set_tcp_nodelay each acknowledgement waits for the next: a hundredth of the rate.
        lines = (
            f"listener {port} 127.0.0.1",
            "allow_anonymous true",
            "set_tcp_nodelay true",
            "persistence false",
            "max_inflight_messages 1000",
            "max_queued_messages 0",
        )
        config.write_text("\n".join(lines) + "\n")
        if os.getuid() == 0:
            config.write_text(config.read_text() + "user root\n")
        super().__init__([_MOSQUITTO, "-c", str(home.seen / config.name)], home, port, {})

    @staticmethod
    def is_available() -> bool:
        return _has(_MOSQUITTO)


class RabbitMq(_Process):
    """What no queue is bound to is acknowledged and dropped; a session that is kept has a quorum queue."""

    name = "RabbitMQ"
    package = "rabbitmq-server"
    durability = "dropped if no session wants it"

    def __init__(self, data: Path) -> None:
        port, self._epmd_port = free_port(), str(free_port())
        home = _Home(data)
        (home.path / "plugins").write_text("[rabbitmq_mqtt].")
        config = home.path / "rabbitmq.conf"
        config.write_text(
            f"listeners.tcp = none\nmqtt.listeners.tcp.1 = 127.0.0.1:{port}\nmqtt.allow_anonymous = true\n"
            "mqtt.durable_queue_type = quorum\nmqtt.prefetch = 100\n"
            "mqtt.tcp_listen_options.nodelay = true\nmqtt.tcp_listen_options.backlog = 2048\n"
        )
        env = {
            "HOME": str(home.seen),
            "ERL_EPMD_PORT": self._epmd_port,
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(home.seen / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home.seen / "logs"),
            "RABBITMQ_CONFIG_FILE": str(home.seen / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home.seen / "plugins"),
            "RABBITMQ_PID_FILE": str(home.seen / "pid"),
        }
        super().__init__([_RABBITMQ], home, port, env)

    def stop(self) -> None:
        super().stop()
        epmd = shutil.which("epmd")
        if epmd is not None:
            # Erlang's port mapper outlives the node; this one is on a port of its own.
            subprocess.run([epmd, "-port", self._epmd_port, "-kill"], capture_output=True, check=False)

    @staticmethod
    def is_available() -> bool:
        return _has(_RABBITMQ)
