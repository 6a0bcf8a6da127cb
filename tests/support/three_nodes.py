"""Three nodes inside the test's own process."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from millstream.config.settings import Settings
from millstream.runtime.ports import ReservedPorts
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode
from support.raw_client import RawClient


class ThreeNodes:
    """Nodes 1 to 3 of one cluster, each on a disk that fails on command."""

    def __init__(
        self,
        session_ms: int = 5000,
        lag_ms: int = 30_000,
        routing: str = "direct",
        *,
        has_node_listeners: bool = False,
    ) -> None:
        self._reserved = ReservedPorts(3)
        seeds = tuple(self._reserved.addresses)
        self.disks = {number: SimulatedDisk(number) for number in (1, 2, 3)}
        self.nodes = {
            number: InProcessNode(
                self.disks[number],
                _settings(number, port, seeds, session_ms, lag_ms, routing, has_node_listeners),
            )
            for number, port in enumerate(self._reserved.ports, 1)
        }
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda node: node.start(), self.nodes.values()))

    def close(self) -> None:
        # All at once: the last one of three waits for a majority before it gives up.
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(self.stop, list(self.nodes)))
        self._reserved.close()

    def stop(self, number: int) -> InProcessNode:
        node = self.nodes.pop(number)
        node.stop()
        return node

    def start_again(self, number: int, stopped: InProcessNode) -> None:
        """The same node on the same disk."""
        self.disks[number].restart()
        node = self.nodes[number] = InProcessNode(self.disks[number], stopped.broker.settings)
        node.start()

    def controller(self) -> int:
        until(lambda: self.nodes[1].broker.metadata.controller_id != -1)
        return self.nodes[1].broker.metadata.controller_id

    def create(self, number: int, name: str, replicas: int = 1, **configs: str) -> int:
        with RawClient(self.nodes[number].listen) as client:
            settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
            wanted = {
                "name": name,
                "num_partitions": 1,
                "replication_factor": replicas,
                "configs": settings,
            }
            return int(client.call("create_topics", 7, topics=[wanted]).topics[0].error_code)

    def knows(self, number: int, name: str) -> bool:
        return name in self.nodes[number].broker.metadata.image.topics


def _settings(
    number: int,
    port: int,
    seeds: tuple[str, ...],
    session_ms: int,
    lag_ms: int,
    routing: str,
    has_node_listener: bool,
) -> Settings:
    # Nobody waits three seconds for company, and no other node can know of a cluster.
    settings = Settings(kafka={"group.initial.rebalance.delay.ms": "0"})
    broker = replace(settings.broker, id=number, host="127.0.0.1", port=port, data_dir="/data")
    if has_node_listener:
        # The seeds are the nodes' own addresses; clients come to a free port.
        broker = replace(broker, port=0, node_listen=seeds[number - 1])
    return replace(
        settings,
        broker=replace(broker, client_routing=routing),
        cluster=replace(
            settings.cluster, bootstrap_servers=seeds, session_timeout=session_ms, founding_wait=0
        ),
        storage=replace(settings.storage, cleaner_enabled=False),
        replication=replace(settings.replication, replica_lag_time_max=lag_ms),
    )


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that within 90 s"
        time.sleep(0.01)
