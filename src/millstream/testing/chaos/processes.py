"""The nodes of a chaos run, each in its own process, whose disk and clock can be disturbed."""

import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from millstream.runtime.ports import ReservedPorts
from millstream.testing.chaos.wires import Wires
from millstream.testing.faulty_machine import Trouble
from millstream.testing.processes import NodeProcess, node_environment


class ChaosNode(NodeProcess):
    def __init__(
        self, number: int, home: Path, address: str, seeds: str, prefix: list[str], routing: str
    ) -> None:
        self.number = number
        self.address = address
        self.data = home / "data"
        host, port = address.rsplit(":", 1)
        settings = {
            "BROKER_ID": str(number), "BROKER_HOST": host, "BROKER_PORT": port,
            "BROKER_DATA_DIR": str(self.data), "CLUSTER_BOOTSTRAP_SERVERS": seeds, "LOG_FORMAT": "json",
            "KAFKA_CLIENT_ROUTING": routing,
            # Groups start without waiting for more members, and internal topics are created as in production.
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "CLUSTER_FOUNDING_WAIT": "0ms",
            # A fault lasts for seconds: a disk that does not answer must be noticed within one.
            "REPLICATION_REPLICA_LAG_TIME_MAX": "2s",
        }  # fmt: skip
        command = [*prefix, sys.executable, "-m", "millstream.testing.faulty_serve"]
        super().__init__(f"node {number}", home / "node.log", command, node_environment(**settings))
        home.mkdir(parents=True, exist_ok=True)

    @property
    def is_ending(self) -> bool:
        """It has exited, or has reported that it will."""
        return not self.is_running or any(self.logged("node ends"))

    def trouble(self, trouble: Trouble) -> None:
        """Set the troubles of its machine."""
        if self.is_running and self.process is not None and self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.write(msgspec.json.encode(trouble) + b"\n")
                self.process.stdin.flush()


class ChaosCluster:
    """Nodes 1 to `count`; with `wires`, each in its own network."""

    def __init__(self, directory: Path, count: int, wires: Wires | None, routing: str = "direct") -> None:
        self.wires = wires
        numbers = range(1, count + 1)
        self._reserved = ReservedPorts(count if wires is None else 0)
        if wires is None:
            addresses = dict(zip(numbers, self._reserved.addresses, strict=True))
        else:
            addresses = {number: f"{wires.address(number)}:9092" for number in numbers}
        self.bootstrap = ",".join(addresses.values())
        self.nodes = {
            number: ChaosNode(
                number,
                directory / f"node-{number}",
                addresses[number],
                self.bootstrap,
                [] if wires is None else wires.prefix(number),
                routing,
            )
            for number in numbers
        }

    def start(self) -> None:
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()

    def close(self) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                node.kill()
        self._reserved.close()
