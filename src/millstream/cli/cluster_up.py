"""A cluster on this machine: every node in its own process, all started and stopped together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from millstream.cli import output
from millstream.cli.errors import CommandError
from millstream.config.sources import CONFIG_FILE_VARIABLE
from millstream.runtime.disk import SystemDisk
from millstream.runtime.ports import ReservedPorts
from millstream.testing.processes import READY_SECONDS, NodeProcess

_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_TAIL_LINES = 5
_FIRST_PORT = 9092


class LocalNode(NodeProcess):
    stdin = subprocess.DEVNULL

    def __init__(self, node_id: int, address: str, data: Path, http: str | None) -> None:
        self.node_id, self.address, self.data, self.http = node_id, address, data, http
        self.settings_file = data.with_suffix(".yaml")
        """The node's settings file, with which `millstream serve --config` can also start it alone."""
        command = [sys.executable, "-m", "millstream", "serve", "--config", str(self.settings_file)]
        super().__init__(f"node {node_id}", data.with_suffix(".log"), command)

    def last_words(self) -> str:
        """Why the node exited, if its log says so; otherwise the end of its log."""
        tail = self.log_tail(_TAIL_LINES)
        last = tail.rpartition("\n")[2]
        return last.removeprefix("error: ") if last.startswith("error: ") else f"\n{tail}"

    @property
    def was_removed(self) -> bool:
        """Whether the node exited because it was removed from the cluster."""
        return f"node {self.node_id} was removed from the cluster" in self.last_words()


@dataclass(slots=True)
class LocalCluster:
    """Nodes 1 to `count` under `directory`, with ports from `first_port` on; by default from 9092 on, or any free ones.

    `settings` are sections of a settings file; the environment overrides them.
    """

    directory: Path
    count: int
    first_port: int = 0
    http: bool = False
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    nodes: list[LocalNode] = field(default_factory=list)
    _disk: SystemDisk = field(default_factory=SystemDisk)
    _reserved: list[ReservedPorts] = field(default_factory=list)

    def start(self) -> None:
        """Launch all nodes; CommandError, before any change, if they cannot run."""
        self._take_directory()
        ports = self._ports()
        _require_free(ports)
        web = self._reserve() if self.http else [None] * self.count
        self.nodes = [
            LocalNode(
                number,
                f"127.0.0.1:{port}",
                self.directory / f"node-{number}",
                None if web_port is None else f"127.0.0.1:{web_port}",
            )
            for number, (port, web_port) in enumerate(zip(ports, web, strict=True), 1)
        ]
        self._remember(ports)
        for node in self.nodes:
            self._write_settings(node)
            node.launch()

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.nodes)

    def wait_until_ready(self) -> None:
        """Return when every node serves; CommandError with the end of its log if a node exits instead.

        Nodes removed from the cluster are skipped.
        """
        deadline = time.monotonic() + READY_SECONDS
        waiting = list(self.nodes)
        while waiting:
            for node in list(waiting):
                if node.exit_code is not None and node.was_removed and len(self.nodes) > 1:
                    waiting.remove(node)
                    self.nodes.remove(node)
                    output.note(
                        f"node {node.node_id} was removed from the cluster and is left out; without {node.data} a new"
                        " one starts in its place"
                    )
                elif node.exit_code is not None:
                    raise CommandError(
                        f"node {node.node_id} did not start; {node.log_file}: {node.last_words()}"
                    )
            waiting = [each for each in waiting if not _serves(each.address)]
            if waiting and time.monotonic() > deadline:
                away = ", ".join(str(each.node_id) for each in waiting)
                raise CommandError(
                    f"not ready after {READY_SECONDS:g} s: node {away}; see {waiting[0].log_file}"
                )
            if waiting:
                time.sleep(_LOOK_SECONDS)

    def watch(self) -> int:
        """Return when all nodes have exited; each exit is reported."""
        running = list(self.nodes)
        while running:
            for node in list(running):
                if node.exit_code is not None:
                    running.remove(node)
                    again = f"see {node.log_file}; to start it again: millstream serve --config {node.settings_file}"
                    output.note(
                        f"node {node.node_id} was removed from the cluster and has ended"
                        if node.was_removed
                        else f"node {node.node_id} ended with {_ending(node.exit_code)}; {again}"
                    )
            time.sleep(_LOOK_SECONDS)
        return 1

    def stop(self) -> bool:
        """Ask all nodes to stop, one after the other so that each can hand over; returns whether all stopped
        cleanly.
        """
        is_clean = True
        deadline = time.monotonic() + _STOP_SECONDS
        for node in self.nodes:
            process = node.process
            if process is None or process.poll() is not None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # A node may die of the signal before it handles it: then it had not started anything. A removed node exits
            # by itself.
            if process.returncode not in (0, -signal.SIGTERM) and not node.was_removed:
                is_clean = False
                output.note(
                    f"node {node.node_id} ended with {_ending(process.returncode)}; see {node.log_file}"
                )
        return is_clean

    def _write_settings(self, node: LocalNode) -> None:
        host, _, port = node.address.rpartition(":")
        broker = {"id": node.node_id, "host": host, "port": int(port), "data_dir": str(node.data.absolute())}
        own: dict[str, Mapping[str, object]] = {**self.settings, "broker": broker}
        if self.count > 1:
            # A node that lists only its own address is alone.
            seeds = [each.address for each in self.nodes]
            own["cluster"] = {**self.settings.get("cluster", {}), "bootstrap_servers": seeds}
        if node.http is not None:
            web_host, _, web_port = node.http.rpartition(":")
            own["http"] = {"host": web_host, "port": int(web_port)}
        file = os.environ.get(CONFIG_FILE_VARIABLE)
        common = (yaml.safe_load(Path(file).read_text()) or {}) if file else {}
        sections = {**common, **{name: {**(common.get(name) or {}), **each} for name, each in own.items()}}
        node.settings_file.write_text(yaml.safe_dump(sections, sort_keys=False))

    def _take_directory(self) -> None:
        """Lock the directory until this process ends: a second one would write other ports, and its nodes would
        fail.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            is_ours = self._disk.lock(str(self.directory / ".lock"))
        except OSError as error:
            raise CommandError(
                f"cannot write to {self.directory}: {error.strerror}; choose another directory with --data"
            ) from error
        if not is_ours:
            raise CommandError(
                f"a cluster runs in {self.directory} already; stop it, or choose another directory with --data"
            )

    def _ports(self) -> list[int]:
        """The ports of the last start in this directory: the seeds of a cluster do not change."""
        if self.first_port:
            return list(range(self.first_port, self.first_port + self.count))
        remembered = self._ports_file.read_text().split() if self._ports_file.exists() else []
        ports = [int(each) for each in remembered if each.isdecimal()]
        if len(ports) >= self.count:
            return ports[: self.count]
        usual = list(range(_FIRST_PORT, _FIRST_PORT + self.count))
        return usual if not ports and all(map(_is_free, usual)) else self._reserve()

    def _reserve(self) -> list[int]:
        """Free ports, in order, reserved as long as this process runs."""
        self._reserved.append(ReservedPorts(self.count))
        return self._reserved[-1].ports

    def _remember(self, ports: list[int]) -> None:
        self._ports_file.write_text(" ".join(map(str, ports)) + "\n")

    @property
    def _ports_file(self) -> Path:
        return self.directory / "ports"


def _serves(address: str) -> bool:
    """Whether the node answers clients: while it waits for other nodes, it closes clients' connections."""
    host, _, port = address.rpartition(":")
    # ApiVersions, version 0, without a client's name.
    request = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
    try:
        with socket.create_connection((host, int(port)), timeout=1.0) as connection:
            connection.sendall(request)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


def _require_free(ports: list[int]) -> None:
    """Fail if a port is taken: the nodes would ask the program there to join, and might find another cluster."""
    for port in ports:
        try:
            _listen(port)
        except OSError as error:
            raise CommandError(
                f"cannot listen on 127.0.0.1:{port}: {error.strerror}; stop what listens there, or choose"
                " another first port with --port"
            ) from error


def _is_free(port: int) -> bool:
    try:
        _listen(port)
    except OSError:
        return False
    return True


def _listen(port: int) -> None:
    with socket.socket() as attempt:
        # As in the nodes: this allows ports of recently closed connections.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.bind(("127.0.0.1", port))


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
