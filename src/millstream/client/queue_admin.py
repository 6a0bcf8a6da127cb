"""`QueueAdmin`: look at queues, purge them, and bring dead letters back."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self
from uuid import UUID

from millstream.client.errors import UnknownTopicError, from_code
from millstream.client.queue_wire import ask_leader, ask_node, records_of
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.properties import cluster_settings
from millstream.protocol.queue_call import (
    LookAtQueues,
    PeekAtQueue,
    Peeked,
    Purged,
    PurgeQueue,
    QueueRow,
    QueueRows,
)
from millstream.protocol.records import Record

_TIMEOUT_S = 15.0
# Kafka's numbers: the resource, and the operation on a setting.
_GROUP, _SET, _DELETE = 32, 0, 1


class QueueAdmin:
    """Queues of a cluster; a context manager.

    >>> with QueueAdmin("localhost:9092") as admin:
    ...     for queue in admin.queues(topic="no-such-topic"):
    ...         print(queue.group, queue.depth)
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "millstream",
        extra: Mapping[str, str] | None = None,
    ) -> None:
        settings = cluster_settings(bootstrap_servers, client_id, extra, _TIMEOUT_S)
        self._cluster = Cluster(replace(settings, asks_node_itself=True))

    def queues(self, group: str = "", topic: str = "") -> list[QueueRow]:
        """All queues, on all nodes, also those that no consumer uses."""

        def ask() -> list[QueueRow]:
            self._cluster.metadata([])
            request = LookAtQueues(group, topic)
            return [
                row
                for node_id in sorted(self._cluster.addresses)
                for row in ask_node(
                    self._cluster.node(node_id), "looking at queues", request, QueueRows
                ).queues
            ]

        found = self._cluster.patiently("looking at queues", ask)
        return sorted(found, key=lambda row: (row.group, row.topic, row.partition))

    def partitions(self, topic: str) -> int:
        found = self._cluster.topics([topic]).get(topic)
        if found is None:
            raise UnknownTopicError(f"there is no topic {topic!r}", "UNKNOWN_TOPIC_OR_PARTITION")
        return len(found.partitions)

    def topic_id(self, topic: str) -> UUID:
        found = self._cluster.topics([topic]).get(topic)
        if found is None:
            raise UnknownTopicError(f"there is no topic {topic!r}", "UNKNOWN_TOPIC_OR_PARTITION")
        return UUID(bytes=bytes(found.topic_id))

    def peek(
        self, group: str, topic: str, partition: int, *, offset: int = 0, max_messages: int = 10
    ) -> tuple[Peeked, dict[int, Record]]:
        """The group's unsettled messages, as the queue holds them, and their records by offset."""
        request = PeekAtQueue(group, topic, partition, offset, max_messages)
        action = f"looking into {topic}-{partition}"
        peeked = ask_leader(self._cluster, action, topic, partition, request, Peeked)
        return peeked, {record.offset: record for record in records_of(peeked.batches)}

    def purge(self, group: str, topic: str) -> int:
        """Discard all messages of the topic that wait for the group; returns how many."""
        return sum(
            ask_leader(
                self._cluster,
                f"purging {topic}-{partition}",
                topic,
                partition,
                PurgeQueue(group, topic, partition),
                Purged,
            ).messages
            for partition in range(self.partitions(topic))
        )

    def group_configs(self, group: str) -> dict[str, str]:
        """The effective settings of a share group."""
        wanted = {"resource_type": _GROUP, "resource_name": group, "configuration_keys": None}
        for result in self._cluster.call("describe_configs", resources=[wanted]).results:
            if result.error_code:
                raise from_code(f"settings of group {group}", result.error_code, result.error_message)
            # The reply lists the settings of consumer groups too, whatever the group's kind.
            return {each.name: each.value for each in result.configs if not each.name.startswith("consumer.")}
        return {}

    def alter_group_configs(self, group: str, configs: Mapping[str, str | None]) -> None:
        """Change settings of a share group, by Kafka's names; None resets a setting."""
        changes = [
            {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
            for name, value in configs.items()
        ]
        resource = {"resource_type": _GROUP, "resource_name": group, "configs": changes}
        reply = self._cluster.call("incremental_alter_configs", resources=[resource], validate_only=False)
        for response in reply.responses:
            if response.error_code:
                raise from_code(f"settings of group {group}", response.error_code, response.error_message)

    def close(self) -> None:
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
