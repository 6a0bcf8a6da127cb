"""What no node can do yet: keep more than one replica of a partition."""

from collections.abc import Callable

from millstream.config.errors import ConfigError
from millstream.config.settings import Settings

_ONE_REPLICA = "records are kept by one node only"
_NO_FOLLOWERS = f"{_ONE_REPLICA}: there are no followers that could lag; remove the line"
_PRODUCER = "belongs to the producer's configuration, as {}; remove it here"

# Keys of well-known sample files that would be accepted and then do nothing.
REFUSED_SETTINGS = {
    "performance.batch_size": _PRODUCER.format("batch.size"),
    "performance.linger_time": _PRODUCER.format("linger.ms"),
    "replication.replica_lag_time_max": _NO_FOLLOWERS,
    "replication.replica_lag_records_max": _NO_FOLLOWERS,
}


def check_replication(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Raise ConfigError when the settings need more replicas than there can be; `where` tells a setting's place."""
    replication = settings.replication
    if replication.default_replication_factor > 1:
        raise ConfigError(
            "replication.default_replication_factor",
            f"{_ONE_REPLICA}: there cannot be {replication.default_replication_factor} replicas; "
            "write default_replication_factor: 1",
            where("default.replication.factor"),
        )
    if replication.min_insync_replicas > 1:
        raise ConfigError(
            "replication.min_insync_replicas",
            f"{_ONE_REPLICA}: with {replication.min_insync_replicas} no producer with acks=all could be served; "
            "write min_insync_replicas: 1",
            where("min.insync.replicas"),
        )
    _check_servers(settings, where("cluster.bootstrap_servers"))
    for topic in settings.topics:
        place = where(f"topics.{topic.name}")
        if topic.replication_factor > 1:
            raise ConfigError(
                f"topics.{topic.name}.replication_factor",
                f"{_ONE_REPLICA}: there cannot be {topic.replication_factor} replicas; write replication_factor: 1",
                place,
            )
        if int(topic.configs.get("min.insync.replicas", "1")) > 1:
            raise ConfigError(
                f"topics.{topic.name}.min.insync.replicas",
                f"{_ONE_REPLICA}: no producer with acks=all could be served; write 1",
                place,
            )


def _check_servers(settings: Settings, where: str | None) -> None:
    for server in settings.cluster.bootstrap_servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(
                "cluster.bootstrap_servers",
                f"{server!r} is not an address; write host:port, such as localhost:9092",
                where,
            )
