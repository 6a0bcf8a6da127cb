"""Settings of topics and brokers, and the log directories of brokers."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from millstream.client.admin.values import ConfigEntry, LogDir
from millstream.client.errors import ConnectionFailedError, UnknownTopicError, error_name, from_code
from millstream.client.positions import TopicPartition
from millstream.client.wire.cluster import Cluster
from millstream.protocol.errors import ErrorCode

_SET, _DELETE = 0, 1
_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "static",
    5: "default",
    6: "logger",
    7: "client",
    8: "group",
}


class ResourceKind(IntEnum):
    """The kinds of resources that have settings, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


class SettingsAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        """All settings of a topic by name; UnknownTopicError when it does not exist."""
        return self._configs(ResourceKind.TOPIC, topic)

    def broker_configs(self, broker: int | None = None) -> dict[str, ConfigEntry]:
        """All settings of a broker by name; without a broker, the dynamic settings of all brokers."""
        return self._configs(ResourceKind.BROKER, "" if broker is None else str(broker))

    def alter_topic_configs(
        self, topic: str, to_set: Mapping[str, str] | None = None, to_delete: Iterable[str] = ()
    ) -> None:
        """Change some settings and reset others to their defaults; the rest stays."""
        self.alter_configs(ResourceKind.TOPIC, {topic: {**dict.fromkeys(to_delete), **(to_set or {})}})

    def alter_broker_configs(
        self,
        broker: int | None = None,
        to_set: Mapping[str, str] | None = None,
        to_delete: Iterable[str] = (),
    ) -> None:
        """Like `alter_topic_configs`, for one broker, or for all brokers when none is given."""
        name = "" if broker is None else str(broker)
        self.alter_configs(ResourceKind.BROKER, {name: {**dict.fromkeys(to_delete), **(to_set or {})}})

    def alter_configs(self, kind: ResourceKind, settings: Mapping[str, Mapping[str, str | None]]) -> None:
        """Change the settings of each named resource; a setting whose value is None is reset."""
        resources = [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [
                    {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
                    for key, value in values.items()
                ],
            }
            for name, values in settings.items()
        ]
        if not resources:
            return
        # A Kafka broker accepts changes to its own settings only; a Millstream node accepts all.
        to = next(iter(settings)) if len(settings) == 1 else ""
        for each in self._ask(kind, to, "incremental_alter_configs", resources=resources).responses:
            self._check(kind, each, "cannot change the configuration of")

    def log_dirs(self, broker: int | None = None) -> list[LogDir]:
        """The log directories of one broker, or of all, with the size of each partition. When all are asked, a broker
        that does not answer is listed with an error instead of its directories."""
        cluster = self._cluster
        cluster.patiently("cannot read the cluster's metadata", lambda: cluster.metadata([]))
        found = []
        for node in sorted(cluster.addresses) if broker is None else [broker]:
            try:
                reply = cluster.call_node(node, "describe_log_dirs", topics=None)
            except ConnectionFailedError as failure:
                if broker is not None:
                    raise
                found.append(LogDir(node, "", {}, error=str(failure)))
                continue
            for each in reply.results:
                sizes = {
                    TopicPartition(topic.name, part.partition_index): part.partition_size
                    for topic in each.topics
                    for part in topic.partitions
                }
                error = error_name(each.error_code) if each.error_code else None
                total, usable = (_known(getattr(each, name, -1)) for name in ("total_bytes", "usable_bytes"))
                found.append(LogDir(node, each.log_dir, sizes, total, usable, error))
        return found

    def _configs(self, kind: ResourceKind, name: str) -> dict[str, ConfigEntry]:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        reply = self._ask(kind, name, "describe_configs", resources=[resource])
        self._check(kind, reply.results[0], "cannot read the configuration of")
        return {
            each.name: ConfigEntry(
                each.name,
                each.value,
                _SOURCES.get(each.config_source, "unknown"),
                each.read_only,
                each.is_sensitive,
            )
            for each in sorted(reply.results[0].configs, key=lambda each: str(each.name))
        }

    def _ask(self, kind: ResourceKind, name: str, request: str, **fields: Any) -> Any:
        """Asks the broker itself about a broker: a Kafka broker answers only for itself. Otherwise asks any node."""
        cluster = self._cluster
        if kind is ResourceKind.BROKER and name:
            cluster.patiently("cannot read the cluster's metadata", lambda: cluster.metadata([]))
            return cluster.call_node(int(name), request, **fields)
        return cluster.call(request, **fields)

    def _check(self, kind: ResourceKind, result: Any, action: str) -> None:
        if not result.error_code:
            return
        name = result.resource_name
        if kind is ResourceKind.TOPIC and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            addresses = self._cluster.settings.addresses
            raise UnknownTopicError(
                f"there is no topic {name!r} at {addresses}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
            )
        what = (
            f"topic {name!r}" if kind is ResourceKind.TOPIC else f"broker {name}" if name else "all brokers"
        )
        raise from_code(f"{action} {what}", result.error_code, result.error_message)


def _known(size: int) -> int | None:
    return size if size >= 0 else None
