"""A cluster seen through its brokers: topics, leaders, offsets. Waits out restarts and elections, within limits."""

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from millstream.protocol.errors import ErrorCode
from millstream.spark.wire import requests
from millstream.spark.wire.connection import Connection
from millstream.spark.wire.errors import AuthenticationFailed, BrokerRefused, Unreachable
from millstream.spark.wire.requests import ClusterInfo, TopicInfo
from millstream.spark.wire.settings import ClusterSettings

T = TypeVar("T")
TopicPartition = tuple[str, int]

_LONGEST_BACKOFF_S = 2.0


class Cluster:
    """Not for several threads at once."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._bootstrap: Connection | None = None
        self._by_node: dict[int, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def close(self) -> None:
        for connection in (self._bootstrap, *self._by_node.values()):
            if connection is not None:
                connection.close()
        self._bootstrap = None
        self._by_node.clear()
        self._leaders.clear()

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Those that exist, of `names` or of all."""
        wanted = None if names is None else sorted(set(names))
        if wanted == []:
            return {}

        def ask() -> dict[str, TopicInfo]:
            found = {}
            for topic in self._metadata(wanted).topics:
                if topic.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                    continue
                if topic.error:
                    raise BrokerRefused(f"topic {topic.name} cannot be described", topic.error)
                found[topic.name] = topic
            return found

        return self.patiently("the cluster's topics cannot be listed", ask)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets by time in milliseconds, LATEST or EARLIEST; -1 where no record is that late."""
        found: dict[TopicPartition, int] = {}

        def ask() -> dict[TopicPartition, int]:
            missing = {each: at for each, at in wanted.items() if each not in found}
            for node, times in self._by_leader(missing).items():
                body = requests.list_offsets_request(times, self.settings.isolation_level)
                reply = self.connection(node).request(
                    requests.LIST_OFFSETS, requests.LIST_OFFSETS_VERSION, body
                )
                for each in requests.read_list_offsets(reply):
                    if each.error:
                        raise BrokerRefused(f"offsets of {each.topic}-{each.partition}", each.error)
                    found[each.topic, each.partition] = each.offset
            return found

        return self.patiently("offsets cannot be listed", ask)

    def leader(self, topic: str, partition: int) -> Connection:
        """A connection to the partition's leader, as far as known."""
        return self.connection(self._leader_of({(topic, partition)})[topic, partition])

    def connection(self, node: int) -> Connection:
        connection = self._by_node.get(node)
        if connection is None:
            address = self._addresses.get(node)
            if address is None:
                raise BrokerRefused(f"broker {node}", ErrorCode.BROKER_NOT_AVAILABLE)
            connection = Connection(*address, self.settings)
            self._by_node[node] = connection
        return connection

    def patiently(self, action: str, attempt: Callable[[], T], timeout_s: float | None = None) -> T:
        """`attempt`, repeated with new connections and leaders while what goes wrong may pass."""
        limit = self.settings.api_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        backoff = self.settings.retry_backoff_s
        while True:
            try:
                return attempt()
            except AuthenticationFailed:
                self.close()
                raise
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise AuthenticationFailed(
                    f"{action}: the broker's certificate is refused: {error}"
                ) from error
            except (OSError, BrokerRefused) as error:
                # Whatever was in flight on these connections is lost with them.
                self.close()
                if isinstance(error, BrokerRefused) and not error.retriable:
                    raise
                if time.monotonic() + backoff > deadline:
                    raise Unreachable(
                        f"{action}: {error} (brokers {self.settings.addresses}, tried for {limit:.0f} s)"
                    ) from error
            time.sleep(backoff)
            backoff = min(2 * backoff, _LONGEST_BACKOFF_S)

    def _by_leader(self, wanted: Mapping[TopicPartition, int]) -> dict[int, dict[str, dict[int, int]]]:
        leaders = self._leader_of(wanted)
        by_node: dict[int, dict[str, dict[int, int]]] = {}
        for (topic, partition), at in wanted.items():
            by_node.setdefault(leaders[topic, partition], {}).setdefault(topic, {})[partition] = at
        return by_node

    def _leader_of(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The leader of each, asked for where it is not known; a partition between two leaders is not gone."""
        unknown = [place for place in places if place not in self._leaders]
        if not unknown:
            return self._leaders
        info = self._metadata(sorted({topic for topic, _ in unknown}))
        existing = {(topic.name, each.partition) for topic in info.topics for each in topic.partitions}
        for place in unknown:
            if place not in self._leaders:
                gone = place not in existing
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.LEADER_NOT_AVAILABLE
                raise BrokerRefused(f"{place[0]}-{place[1]}", code)
        return self._leaders

    def _metadata(self, topics: list[str] | None) -> ClusterInfo:
        body = requests.metadata_request(topics)
        reply = self._any_connection().request(requests.METADATA, requests.METADATA_VERSION, body)
        info = requests.read_metadata(reply)
        for node in [node for node, address in self._addresses.items() if info.brokers.get(node) != address]:
            if node in self._by_node:
                self._by_node.pop(node).close()
        self._addresses = dict(info.brokers)
        for topic in info.topics:
            for partition in topic.partitions:
                if partition.leader >= 0:
                    self._leaders[topic.name, partition.partition] = partition.leader
        return info

    def _any_connection(self) -> Connection:
        if self._bootstrap is not None:
            return self._bootstrap
        failures: list[str] = []
        for host, port in self.settings.bootstrap:
            try:
                self._bootstrap = Connection(host, port, self.settings)
            except (AuthenticationFailed, ssl.SSLCertVerificationError):
                raise
            except OSError as error:
                failures.append(f"{host}:{port}: {error}")
            else:
                return self._bootstrap
        raise Unreachable("; ".join(failures))
