"""A gateway in a process of its own, set up by the plain variables of its contract."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from millstream.runtime.ports import ReservedPorts
from support.commands import Process, commands
from support.waiting import wait_for


class GatewayAlone:
    """`with GatewayAlone(directory, brokers) as gateway: gateway.client.post(...)`."""

    def __init__(self, directory: Path, brokers: str, variables: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "gateway.log"
        self._reserved = ReservedPorts(1)
        (self.address,) = self._reserved.addresses
        port = self.address.rpartition(":")[2]
        self._environment = {**os.environ, "PORT": port, "BROKER_SERVICE": brokers, **(variables or {})}
        self.process: Process | None = None
        self.client = httpx.Client(base_url=f"http://{self.address}", timeout=90)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.kill()
        self._reserved.close()

    def start(self) -> Self:
        before = len(self.events("ready"))
        command = ["serve", "--roles", "gateway", "--log-format", "json"]
        with self._log.open("ab") as log, open(os.devnull) as nothing:
            self.process = commands().start(
                command, self._environment, nothing.fileno(), log.fileno(), log.fileno()
            )
        wait_for(lambda: len(self.events("ready")), lambda seen: seen > before, "the gateway listens")
        return self

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(120)
        self.process = None
        return code

    def events(self, name: str) -> list[dict[str, Any]]:
        """Lines of its log with this event."""
        lines = self._log.read_text().splitlines(keepends=True) if self._log.exists() else []
        # The last one may be half written.
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [entry for entry in entries if entry["event"] == name]

    def wait_healthy(self, brokers: int) -> None:
        wait_for(
            lambda: self.client.get("/health").json().get("brokers_healthy"),
            lambda seen: seen == brokers,
            f"{brokers} healthy brokers",
        )
