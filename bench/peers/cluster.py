"""Several of our nodes as one cluster, each a process of its own on this machine."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.machine import Usage
from bench.metadata_view import ClusterState, look
from bench.model import Peer
from bench.peers import Durability, PeerError
from bench.peers.millstream import Millstream, environment
from millstream.runtime.ports import ReservedPorts

_ADMIN_TIMEOUT_SECONDS = 120.0
_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.02
# As `millstream cluster up` has it.
_MIN_IN_SYNC = 2
_TOPIC_CONFIG = {"file.delete.delay.ms": "0", "min.insync.replicas": str(_MIN_IN_SYNC)}


class Cluster:
    """Nodes 1 to `seeds` begin it; `launch` starts these again after they were stopped, and others beside them."""

    kind = Peer.MILLSTREAM

    def __init__(self, directory: Path, seeds: int = 3) -> None:
        self._directory = directory
        # One more than is needed at first, for a node that comes later.
        self._reserved = ReservedPorts(seeds + 1)
        self._addresses = dict(enumerate(self._reserved.addresses, 1))
        self._seeds = tuple(range(1, seeds + 1))
        self.nodes: dict[int, Millstream] = {}

    def start(self) -> None:
        for number in self._seeds:
            self.launch(number)
        for node in self.nodes.values():
            node.wait_ready()

    def launch(self, number: int) -> Millstream:
        """Spawn a node without waiting for it."""
        port = int(self._addresses[number].rpartition(":")[2])
        arguments = ["--node-id", str(number), "--seeds", self._addresses_of(self._seeds)]
        node = self.nodes[number] = Millstream(self._home(number), port, arguments=arguments)
        return node

    def kill(self, number: int) -> None:
        self.nodes.pop(number).kill()

    def lose_disk(self, number: int) -> None:
        """After `kill`: the node's data is gone, and the others are told so."""
        shutil.rmtree(self._home(number))
        self._millstream("cluster", "remove", str(number), "--force", "--yes")

    def stop(self) -> None:
        """At once: what the nodes keep is thrown away anyway."""
        for number in list(self.nodes):
            self.kill(number)

    @property
    def bootstrap(self) -> str:
        return self._addresses_of(self.nodes)

    def usage(self) -> Usage:
        each = [node.usage() for node in self.nodes.values()]
        return Usage(sum(one.cpu_seconds for one in each), sum(one.rss_bytes for one in each))

    def create_topic(self, name: str, partitions: int, durability: Durability) -> None:
        """On all seeds, which lead in turn, so that all rounds have the same placement."""
        count = len(self._seeds)
        assignment = [
            [self._seeds[(index + place) % count] for place in range(count)] for index in range(partitions)
        ]
        config = {**_TOPIC_CONFIG, **durability.topic_config}
        topic = NewTopic(name, num_partitions=partitions, replica_assignment=assignment, config=config)
        admin = self.admin()
        self._ask_admin(f"creating topic {name}", admin.create_topics([topic])[name].result)
        for number in self.nodes:
            self.wait(number, lambda state: len(state.topics) == 1, f"topic {name}", [name])

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        self._ask_admin(f"deleting topic {name}", admin.delete_topics([name])[name].result)

    def admin(self) -> AdminClient:
        """A new one: nodes come and go. It must be kept until it has answered."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def address(self, number: int) -> str:
        return self._addresses[number]

    def look(self, number: int, topics: Sequence[str] | None = None) -> ClusterState:
        return look(self._addresses[number], topics)

    def wait(
        self,
        number: int,
        is_so: Callable[[ClusterState], bool],
        what: str,
        topics: Sequence[str] | None = None,
    ) -> float:
        """When (perf_counter) that node first answered that it is so."""
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while time.perf_counter() < deadline:
            self.nodes[number].check_alive()
            try:
                state = self.look(number, topics)
            except OSError:
                pass
            else:
                at = time.perf_counter()
                if is_so(state):
                    return at
            time.sleep(_LOOK_SECONDS)
        raise PeerError(f"node {number} did not come to this within {_PATIENCE_SECONDS:.0f} s: {what}")

    def wait_in_sync(self, topic: str) -> float:
        """When every partition of the topic first had all of its replicas in sync."""
        return self.wait(
            min(self.nodes),
            lambda state: bool(state.topics) and all(each.is_whole for each in state.partitions()),
            f"all replicas of {topic} in sync",
            [topic],
        )

    def _home(self, number: int) -> Path:
        return self._directory / f"node-{number}"

    def _addresses_of(self, numbers: Sequence[int] | dict[int, Millstream]) -> str:
        return ",".join(self._addresses[number] for number in numbers)

    def _millstream(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "millstream", *arguments, "--bootstrap", self.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
        if done.returncode != 0:
            raise PeerError(f"millstream {' '.join(arguments)}: {done.stderr.strip()}")

    @staticmethod
    def _ask_admin(what: str, result: Callable[[float], object]) -> None:
        try:
            result(_ADMIN_TIMEOUT_SECONDS)
        except KafkaException as refused:
            raise PeerError(f"{what}: {refused}") from refused
