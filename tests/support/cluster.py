"""Several nodes, each a process of its own, that make one cluster."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from millstream.runtime.ports import ReservedPorts
from support.node import NodeProcess
from support.raw_client import RawClient

Found = TypeVar("Found")

# Of no interest where all goes well: a machine with other work may take twenty times as long as an idle one.
PATIENCE_S = 90.0
# No other node can know of a cluster.
_SETTINGS = {"cluster.founding_wait": "0ms"}


class ClusterProcesses:
    """Nodes 1 to `count` over directories of their own, each told of all by `--seeds`."""

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        kind: type[NodeProcess] = NodeProcess,
    ) -> None:
        self._reserved = ReservedPorts(count)
        self.seeds = ",".join(self._reserved.addresses)
        self.nodes: dict[int, NodeProcess] = {}
        for number, address in enumerate(self._reserved.addresses, 1):
            home = directory / f"node-{number}"
            home.mkdir(parents=True, exist_ok=True)
            arguments = ["--node-id", str(number), "--seeds", self.seeds]
            node = self.nodes[number] = kind(home, arguments, settings={**_SETTINGS, **(settings or {})})
            node.listen = address

    def launch(self, *numbers: int) -> None:
        """Start processes without waiting for them to be ready."""
        for number in numbers or self.nodes:
            self.nodes[number].launch()

    def start(self) -> "ClusterProcesses":
        self.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        return self

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
        self._reserved.close()

    def ask(self, number: int, api: str, version: int, **fields: Any) -> Any:
        with RawClient(self.nodes[number].listen) as client:
            return client.call(api, version, **fields)

    def describe(self, number: int) -> tuple[int, list[int]]:
        """The controller and the live brokers, as that node knows them."""
        reply = self.ask(number, "describe_cluster", 1)
        return reply.controller_id, sorted(each.broker_id for each in reply.brokers)

    def voters(self, number: int) -> list[int]:
        wanted = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
        reply = self.ask(number, "describe_quorum", 2, topics=[wanted])
        assert reply.error_code == 0
        return [each.replica_id for each in reply.topics[0].partitions[0].current_voters]

    def topics(self, number: int) -> dict[str, list[int]]:
        """The leaders of each topic's partitions, as that node knows them."""
        reply = self.ask(number, "metadata", 12, topics=None)
        return {
            topic.name: [each.leader_id for each in sorted(topic.partitions, key=lambda p: p.partition_index)]
            for topic in reply.topics
        }

    @property
    def running(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.process is not None]

    def controller(self) -> int:
        """Who is the controller, as soon as all that run agree on one of them."""
        seen = eventually(
            lambda: {self.describe(number)[0] for number in self.running},
            lambda controllers: len(controllers) == 1 and -1 not in controllers,
            "one controller",
        )
        return seen.pop()

    def wait_for_brokers(self, *numbers: int) -> None:
        """Until all that run know that exactly these are live."""
        eventually(
            lambda: [self.describe(number)[1] for number in self.running],
            lambda seen: all(each == sorted(numbers) for each in seen),
            f"the live brokers {numbers}",
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(node.listen for node in self.nodes.values())

    def create_topic(self, name: str, partitions: int, **configs: str) -> None:
        """At all three nodes, all in sync."""
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 3,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        (created,) = self.ask(self.running[0], "create_topics", 7, topics=[wanted]).topics
        assert created.error_code == 0, created.error_message
        self.wait_in_sync(name)

    def in_sync_sets(self, name: str, via: int) -> list[list[int]]:
        for topic in self.ask(via, "metadata", 12, topics=None).topics:
            if topic.name == name:
                return [sorted(each.isr_nodes) for each in topic.partitions]
        return []

    def wait_in_sync(self, name: str, count: int = 3) -> None:
        """Until every partition has that many replicas in sync, as all nodes that run know it.

        A single one may not have heard yet that there are fewer, one that has just come back the least.
        """
        eventually(
            lambda: [self.in_sync_sets(name, number) for number in self.running],
            lambda seen: all(sets and min(map(len, sets)) >= count for sets in seen),
            f"{count} replicas in sync",
        )

    def others(self, *gone: int) -> list[int]:
        return [number for number in self.nodes if number not in gone]


@contextmanager
def cluster_of(
    directory: Path,
    count: int = 3,
    settings: Mapping[str, str] | None = None,
    kind: type[NodeProcess] = NodeProcess,
) -> Iterator[ClusterProcesses]:
    cluster = ClusterProcesses(directory, count, settings, kind)
    try:
        yield cluster
    finally:
        cluster.close()


def eventually(look: Callable[[], Found], is_so: Callable[[Found], bool], what: str) -> Found:
    """What `look` gives as soon as it is so; a node that is away or changing counts as not yet."""
    deadline, pause = time.monotonic() + PATIENCE_S, 0.02
    seen: object = None
    while time.monotonic() < deadline:
        try:
            found = look()
        except Exception as error:
            # Clients raise errors of their own.
            seen = error
        else:
            if is_so(found):
                return found
            seen = found
        time.sleep(pause)
        pause = min(pause * 1.4, 0.25)
    raise AssertionError(f"{what} did not come within {PATIENCE_S} s; last seen: {seen!r}")
