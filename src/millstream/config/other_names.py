"""Setting names from well-known sample files: each maps to our setting, or to a warning why it has no effect."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from millstream.config.errors import ConfigError, nearest
from millstream.config.sources import Entry

_PRODUCER = "has no effect: a producer decides it, by its setting {}"

# Keys at the top of the file, outside any section, and their settings.
_FLAT = {
    "broker_id": ("broker", "id"),
    "host": ("broker", "host"),
    "port": ("broker", "port"),
    "data_dir": ("broker", "data_dir"),
    "replication_factor": ("replication", "default_replication_factor"),
    "min_insync_replicas": ("replication", "min_insync_replicas"),
    "log_retention_hours": ("kafka", "log.retention.hours"),
    "profile": ("broker", "profile"),
    "PartitionStrategy": ("replication", "placement"),
    "ReplicationMode": ("kafka", "log.replication.mode"),
    "RoutingMode": ("broker", "client_routing"),
    "ConsumerRoutingMode": ("broker", "client_routing"),
}
_VALUES = {
    # The strategy "hash" is the partition's number modulo the number of nodes.
    "PartitionStrategy": {"hash": "modulo", "dynamic": "balanced"},
    "ReplicationMode": {"async": "async", "sync": "sync"},
}
_WITHOUT_EFFECT = {
    "performance.batch_size": _PRODUCER.format("batch.size"),
    "performance.linger_time": _PRODUCER.format("linger.ms"),
    "replication.replica_lag_records_max": "has no effect: followers are judged by time alone, as in Kafka;"
    " use replica_lag_time_max",
    "ReplicationAckPolicy": "has no effect: acks=all waits for every replica that is in sync, never for a majority;"
    " use min_insync_replicas",
    "BatchSize": "has no effect: consumers say how many messages they take at a time",
    "RingBufferSize": "has no effect: the newest messages of a log are in the system's page cache",
}

PROFILES: Mapping[str, tuple[Entry, ...]] = {
    name: tuple(Entry(section, key, value, f"profile {name}") for section, key, value in entries)
    for name, entries in {
        "throughput": (
            ("replication", "placement", "modulo"),
            ("kafka", "log.replication.mode", "async"),
            ("broker", "client_routing", "proxy"),
        ),
        "consistency": (
            ("replication", "placement", "balanced"),
            ("kafka", "log.replication.mode", "isr"),
            ("replication", "min_insync_replicas", 2),
            ("broker", "client_routing", "direct"),
        ),
    }.items()
}
"""The settings of `broker.profile`, weaker than a file, the environment and flags."""


class Translated(msgspec.Struct, frozen=True):
    entries: list[Entry]
    warnings: list[str]


def translate(entries: Iterable[Entry]) -> Translated:
    """Translate a file's entries to our names."""
    kept: list[Entry] = []
    warnings: list[str] = []
    given = list(entries)
    for entry in given:
        if (reason := _WITHOUT_EFFECT.get(entry.name)) is not None:
            warnings.append(f"{entry.where}: {entry.name} {reason}")
        elif entry.section:
            kept.append(entry)
        elif entry.key == "replication_factor" and _is_alone(given) and entry.value != 1:
            warnings.append(
                f"{entry.where}: replication_factor has no effect: the node is alone and keeps one copy;"
                " name the other nodes in cluster.bootstrap_servers"
            )
        else:
            kept.append(_ours(entry))
    return Translated(kept, warnings)


def _is_alone(entries: list[Entry]) -> bool:
    return not any(entry.name == "cluster.bootstrap_servers" for entry in entries)


def _ours(entry: Entry) -> Entry:
    target = _FLAT.get(entry.key)
    if target is None:
        advice = nearest(entry.key, [*_FLAT, *_WITHOUT_EFFECT])
        raise ConfigError(
            entry.key, f"is not a setting; settings stand in sections, such as 'broker:'{advice}", entry.where
        )
    value = entry.value
    if (choices := _VALUES.get(entry.key)) is not None:
        if value not in choices:
            raise ConfigError(
                entry.key, f"{value!r} is not a valid value; use {', '.join(choices)}", entry.where
            )
        value = choices[str(value)]
    section, key = target
    return replace(entry, section=section, key=key, value=value)
