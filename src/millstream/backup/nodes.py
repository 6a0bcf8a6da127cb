"""The cluster that is backed up, seen through its nodes: connections, leaders, and patience with elections."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from millstream.backup.errors import BackupError, ClusterAway, Refused
from millstream.client.node_connection import Address, NodeConnection
from millstream.protocol.errors import ErrorCode

Result = TypeVar("Result")

METADATA_VERSION = 12
_PATIENCE_SECONDS = 30.0
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 2.0

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def refused(what: str, code: int, message: str | None = None) -> Refused:
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    return Refused(what, code, f"{message} ({name})" if message else name)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class Cluster:
    """Not for several threads at once; a context manager."""

    def __init__(self, bootstrap: Iterable[Address], patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._bootstrap = list(bootstrap)
        self._patience_seconds = patience_seconds
        self._nodes: dict[Address, NodeConnection] = {}
        self.addresses: dict[int, Address] = {}
        self.cluster_id = ""
        self._leaders: dict[tuple[bytes, int], int] = {}
        self._names: dict[bytes, str] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()
        self._nodes.clear()

    def topics(self) -> list[TopicInfo]:
        """All of them, by name, with who leads what now."""
        reply = self.any_node().call(
            "metadata", METADATA_VERSION, topics=None, allow_auto_topic_creation=False
        )
        self.cluster_id = reply.cluster_id or ""
        self.addresses = {each.node_id: (each.host, each.port) for each in reply.brokers}
        self._leaders.clear()
        topics = []
        for topic in reply.topics:
            if topic.error_code:
                raise refused(f"topic {topic.name} cannot be described", topic.error_code)
            self._names[topic.topic_id.bytes] = topic.name
            partitions = []
            for each in sorted(topic.partitions, key=lambda each: each.partition_index):
                self._leaders[topic.topic_id.bytes, each.partition_index] = each.leader_id
                partitions.append(
                    PartitionInfo(
                        each.partition_index, each.leader_id, each.leader_epoch, tuple(each.replica_nodes)
                    )
                )
            topics.append(TopicInfo(topic.name, topic.topic_id.bytes, topic.is_internal, tuple(partitions)))
        return sorted(topics, key=lambda topic: topic.name)

    def leader_of(self, topic_id: bytes, index: int) -> int:
        if (topic_id, index) not in self._leaders:
            self.topics()
        leader = self._leaders.get((topic_id, index))
        if leader is None:
            raise refused("the topic was deleted", ErrorCode.UNKNOWN_TOPIC_ID)
        if leader < 0:
            name = self._names.get(topic_id, topic_id.hex())
            raise refused(f"{name}-{index} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    def leader(self, topic_id: bytes, index: int) -> NodeConnection:
        return self.node(self.leader_of(topic_id, index))

    def node(self, node_id: int) -> NodeConnection:
        address = self.addresses.get(node_id)
        if address is None:
            raise refused(f"node {node_id} is away", ErrorCode.BROKER_NOT_AVAILABLE)
        return self._connected(address)

    def any_node(self) -> NodeConnection:
        if not self._bootstrap:
            raise ClusterAway("no address is given")
        known = [*self._nodes, *self._bootstrap, *self.addresses.values()]
        failure: OSError | None = None
        for address in dict.fromkeys(known):
            try:
                return self._connected(address)
            except OSError as error:
                failure = error
        assert failure is not None
        raise failure

    def _connected(self, address: Address) -> NodeConnection:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = NodeConnection(address)
        return node

    def patiently(self, action: str, attempt: Callable[[], Result]) -> Result:
        """`attempt`, again with new connections and leaders while what goes wrong may pass."""
        deadline = time.monotonic() + self._patience_seconds
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                return attempt()
            except (OSError, Refused) as error:
                self.close()
                self._leaders.clear()
                if isinstance(error, Refused) and error.code not in RETRIABLE:
                    raise
                if time.monotonic() + wait > deadline:
                    if isinstance(error, Refused):
                        raise BackupError(f"{action}: {error}") from error
                    raise ClusterAway(f"{action}: {error.strerror or error}") from error
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
