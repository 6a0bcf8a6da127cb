"""What a node alone cannot do: keep more than one replica of a partition."""

from collections.abc import Callable

from millstream.config.errors import ConfigError
from millstream.config.settings import Settings

_ALONE = "the node is alone"


def check_replication(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Raise ConfigError when a node alone is asked for more than one replica; `where` tells a setting's place."""
    if settings.is_one_of_several:
        return
    replication = settings.replication
    if replication.default_replication_factor > 1:
        raise ConfigError(
            "replication.default_replication_factor",
            f"{_ALONE}: there cannot be {replication.default_replication_factor} replicas; "
            "write default_replication_factor: 1, or name the other nodes in cluster.bootstrap_servers",
            where("default.replication.factor"),
        )
    for topic in settings.topics:
        if topic.replication_factor > 1:
            raise ConfigError(
                f"topics.{topic.name}.replication_factor",
                f"{_ALONE}: there cannot be {topic.replication_factor} replicas; write replication_factor: 1,"
                " or name the other nodes in cluster.bootstrap_servers",
                where(f"topics.{topic.name}"),
            )
