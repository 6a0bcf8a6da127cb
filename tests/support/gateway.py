"""A gateway in a process of its own, set up by the plain variables of its contract."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from millstream.runtime.ports import ReservedPorts
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
        self.process: subprocess.Popen[bytes] | None = None
        self.client = httpx.Client(base_url=f"http://{self.address}", timeout=90)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.kill()
        self._reserved.close()

    def start(self) -> Self:
        before = len(self.events("ready"))
        command = [sys.executable, "-m", "millstream", "serve", "--roles", "gateway", "--log-format", "json"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
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
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line for line in map(json.loads, lines) if line["event"] == name]

    def wait_healthy(self, brokers: int) -> None:
        wait_for(
            lambda: self.client.get("/health").json().get("brokers_healthy"),
            lambda seen: seen == brokers,
            f"{brokers} healthy brokers",
        )
