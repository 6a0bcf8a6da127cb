"""Finds a cluster's topics, leaders, offsets and coordinators. Waits out restarts and elections, within limits."""

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

from millstream.client.errors import (
    ClientError,
    ConnectionFailedError,
    NotAuthorizedError,
    TimedOutError,
    from_code,
)
from millstream.client.wire import requests
from millstream.client.wire.connection import Connection
from millstream.client.wire.requests import ClusterInfo
from millstream.client.wire.settings import Address, ClusterSettings
from millstream.protocol.errors import ErrorCode
from millstream.protocol.metadata import TopicMetadata

T = TypeVar("T")
TopicPartition = tuple[str, int]
Place = tuple[str | bytes, int]
"""A partition by its topic's name or id."""

_LONGEST_BACKOFF_S = 2.0
_COORDINATOR_VERSION = 3
_MISSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
        ErrorCode.UNKNOWN_TOPIC_ID.name,
        ErrorCode.INCONSISTENT_TOPIC_ID.name,
    }
)


class Cluster:
    """Connections to a cluster's nodes. A context manager, for one thread at a time.

    with Cluster(ClusterSettings((("localhost", 9092),))) as cluster:
        cluster.call("list_partition_reassignments", topics=None).topics
    """

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.cluster_id = ""
        self._bootstrap = list(settings.bootstrap)
        self._connections: dict[Address, Connection] = {}
        self.addresses: dict[int, Address] = {}
        """The addresses of all nodes, from the latest metadata."""
        self._leaders: dict[Place, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop all connections and known leaders. The next request connects and asks for leaders again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()

    # -- nodes

    def any_node(self) -> Connection:
        reason = "no address is given"
        for address in dict.fromkeys((*self._connections, *self._bootstrap, *self.addresses.values())):
            try:
                return self._connected(address)
            except NotAuthorizedError:
                raise
            except OSError as error:
                reason = f"{address[0]}:{address[1]}: {error.strerror or error}"
        raise ConnectionFailedError(f"cannot reach the cluster at {self.settings.addresses}: {reason}")

    def node(self, node_id: int) -> Connection:
        address = self.addresses.get(node_id)
        if address is None:
            raise from_code(f"node {node_id} is away", ErrorCode.BROKER_NOT_AVAILABLE)
        return self._connected(address)

    def leader(self, topic: str | bytes, partition: int) -> Connection:
        """A connection to the partition's leader, as last known."""
        return self.node(self.leader_of(topic, partition))

    def leader_of(self, topic: str | bytes, partition: int) -> int:
        self._find_leaders([(topic, partition)])
        return self._leaders[topic, partition]

    def coordinator(self, group: str) -> Connection:
        """A connection to the group's coordinator, looked up each time, because groups move."""
        reply = self.any_node().call("find_coordinator", _COORDINATOR_VERSION, key=group, key_type=0)
        if reply.error_code:
            raise from_code(f"group {group!r} has no coordinator", reply.error_code, reply.error_message)
        return self._connected((reply.host, reply.port))

    def call(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """The reply of any node; if a connection breaks, asks the next. Only for requests that may be repeated."""
        # One attempt more than there are nodes: the first may use an open connection that has broken since.
        for left in range(len(self._bootstrap) + len(self.addresses), -1, -1):
            node = self.any_node()
            try:
                return node.call(name, version, **fields)
            except OSError as error:
                self._drop(node.address)
                if left == 0:
                    raise ConnectionFailedError(
                        f"cannot reach the cluster at {self.settings.addresses}: {error.strerror or error}"
                    ) from error
        raise AssertionError("the last attempt returns or raises")

    def call_node(self, node_id: int, name: str, **fields: Any) -> Any:
        """The reply of one node; reconnects once if the connection broke. Only for requests that may be repeated."""
        for is_last in (False, True):
            try:
                return self.node(node_id).call(name, **fields)
            except ClientError:
                raise
            except OSError as error:
                self._drop(self.addresses[node_id])
                if is_last:
                    raise ConnectionFailedError(
                        f"node {node_id} does not answer: {error.strerror or error}"
                    ) from error
        raise AssertionError("the last attempt returns or raises")

    def call_once(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """For changes that must not be repeated. TimedOutError when it is unknown whether the change was made."""
        # A harmless request first replaces a connection that broke while idle.
        self.call("api_versions", 0)
        try:
            return self.any_node().call(name, version, **fields)
        except OSError as error:
            self.close()
            raise TimedOutError(f"{error.strerror or error}; it may have been done all the same") from error

    def patiently(self, action: str, attempt: Callable[[], T], timeout_s: float | None = None) -> T:
        """The result of `attempt`, retried with new connections and leaders after errors that may pass."""
        limit = self.settings.api_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        backoff = self.settings.retry_backoff_s
        while True:
            try:
                return attempt()
            except (OSError, ClientError) as error:
                self.close()
                if not self._may_pass(error):
                    raise
                if time.monotonic() + backoff > deadline:
                    raise self._given_up(action, error, limit) from error
            time.sleep(backoff)
            backoff = min(2 * backoff, _LONGEST_BACKOFF_S)

    def _may_pass(self, error: Exception) -> bool:
        if not isinstance(error, ClientError):
            return True
        return error.retriable or (self.settings.waits_for_topics and error.code in _MISSING)

    def _given_up(self, action: str, error: Exception, limit: float) -> ClientError:
        message = f"{action}: {getattr(error, 'strerror', None) or error} (tried for {limit:.0f} s)"
        if isinstance(error, ClientError):
            return type(error)(message, error.code)
        return ConnectionFailedError(f"{message} at {self.settings.addresses}")

    def _connected(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            try:
                connection = self._connections[address] = Connection(address, self.settings)
            except ssl.SSLCertVerificationError as error:
                where = f"{address[0]}:{address[1]}"
                raise NotAuthorizedError(f"{where}: the broker's certificate is refused: {error}") from error
        return connection

    def _drop(self, address: Address | None) -> None:
        if address is None:
            return
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
        # Moved to the end, so that the next call asks another node first.
        if address in self._bootstrap:
            self._bootstrap.remove(address)
            self._bootstrap.append(address)

    # -- topics and offsets

    def metadata(self, topics: Iterable[str] | None) -> ClusterInfo:
        """The metadata of the named topics, or of all. Remembers the leaders and the nodes' addresses."""
        node = self.any_node()
        oldest = requests.METADATA_VERSION
        version = node.version_of(requests.METADATA, requests.NEWEST_METADATA_VERSION, oldest)
        body = requests.metadata_request(None if topics is None else sorted(set(topics)), version)
        info = requests.read_metadata(
            node.request(requests.METADATA, version, body, flexible=version > 8), version
        )
        self.cluster_id = info.cluster_id
        if topics is None:
            self._leaders.clear()
        self.addresses = {broker.node_id: (broker.host, broker.port) for broker in info.brokers.values()}
        for topic in info.topics:
            for each in topic.partitions:
                for name in (topic.name or "", topic.topic_id):
                    self._leaders[name, each.partition] = each.leader
        return info

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicMetadata]:
        """The topics of `names` that exist, or all topics."""
        wanted = None if names is None else sorted(set(names))
        if wanted == []:
            return {}

        def ask() -> dict[str, TopicMetadata]:
            found = {}
            for topic in self.metadata(wanted).topics:
                if topic.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                    continue
                if topic.error:
                    raise from_code(f"topic {topic.name} cannot be described", topic.error)
                found[topic.name or ""] = topic
            return found

        return self.patiently("the cluster's topics cannot be listed", ask)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets at a time in milliseconds, LATEST or EARLIEST; -1 if no record is that late."""
        found: dict[TopicPartition, int] = {}

        def ask() -> dict[TopicPartition, int]:
            missing = {each: at for each, at in wanted.items() if each not in found}
            for each in self.list_offsets(missing):
                if each.error:
                    raise from_code(f"offsets of {each.topic}-{each.partition}", each.error)
                found[each.topic, each.partition] = each.offset
            return found

        return self.patiently("offsets cannot be listed", ask)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, skips_failures: bool = False
    ) -> list[requests.FoundOffset]:
        """Asks each leader once. `skips_failures` leaves out leaders that do not answer, but not partitions without
        a leader."""
        self._find_leaders(wanted)
        by_node: dict[int, dict[str, dict[int, int]]] = {}
        for (topic, partition), at in wanted.items():
            by_node.setdefault(self._leaders[topic, partition], {}).setdefault(topic, {})[partition] = at
        found = []
        for node, times in by_node.items():
            body = requests.list_offsets_request(times, self.settings.isolation_level)
            try:
                reply = self.node(node).request(requests.LIST_OFFSETS, requests.LIST_OFFSETS_VERSION, body)
            except (OSError, ClientError):
                if not skips_failures:
                    raise
                self._drop(self.addresses.get(node))
            else:
                found += requests.read_list_offsets(reply)
        return found

    def _find_leaders(self, places: Iterable[Place]) -> None:
        """Asks for leaders that are not known. Distinguishes partitions without a leader from missing ones."""
        unknown = [place for place in places if self._leaders.get(place, -1) < 0]
        if not unknown:
            return
        names = [topic for topic, _ in unknown]
        self.metadata(None if any(isinstance(each, bytes) for each in names) else map(str, names))
        for topic, partition in unknown:
            leader = self._leaders.get((topic, partition))
            name = topic if isinstance(topic, str) else topic.hex()
            if leader is None:
                is_id = isinstance(topic, bytes)
                gone = ErrorCode.UNKNOWN_TOPIC_ID if is_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise from_code(f"{name}-{partition} does not exist", gone)
            if leader < 0:
                raise from_code(f"{name}-{partition} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
