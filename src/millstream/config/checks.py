"""Checks of settings that must be valid addresses or must be consistent with each other."""

from collections.abc import Callable

from millstream.config.errors import ConfigError, nearest
from millstream.config.settings import Settings


def check_addresses(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Raise ConfigError for one that is not host:port; `where` tells a setting's place."""
    for server in settings.cluster.bootstrap_servers:
        _check("cluster.bootstrap_servers", server, where)
    broker = settings.broker
    for name in ("node_listen", "proxy_listen"):
        address = getattr(broker, name)
        if address is not None:
            _check(f"broker.{name}", address, where, lowest_port=0)
    for name in ("listen", "websocket_listen"):
        address = getattr(settings.mqtt, name)
        if address is not None:
            _check(f"mqtt.{name}", address, where, lowest_port=0)
    if broker.client_address is not None:
        _check("broker.client_address", broker.client_address, where)


def _check(setting: str, address: str, where: Callable[[str], str | None], lowest_port: int = 1) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not lowest_port <= int(port) < 65536:
        reason = f"{address!r} is not an address; write host:port, such as localhost:9092"
        raise ConfigError(setting, reason, where(setting))


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


LEASE_SHARE = 0.8
"""The share of a session for which a broker answers reads after the last heartbeat that a controller accepted.

The rest is a margin for clock drift: a fifth is hundreds of times the real drift.
"""


def check_timing(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Raise ConfigError for times with which brokers could answer stale reads, or would hardly answer at all."""
    if not settings.is_one_of_several:
        return
    cluster, lag = settings.cluster, settings.replication.replica_lag_time_max
    lease = int(cluster.session_timeout * LEASE_SHARE)
    if 2 * cluster.heartbeat_interval > lease:
        raise ConfigError(
            "cluster.heartbeat_interval",
            f"is {cluster.heartbeat_interval}ms: a broker may answer for {lease}ms after a heartbeat, four fifths of"
            f" cluster.session_timeout, and one that is late must do no harm; write {lease // 2}ms or less, or a longer"
            " session_timeout",
            where("broker.heartbeat.interval.ms") or where("broker.session.timeout.ms"),
        )
    if lease >= lag:
        raise ConfigError(
            "replication.replica_lag_time_max",
            f"is {lag}ms: a broker that does not know yet that it is no leader any more may answer for {lease}ms, four"
            " fifths of cluster.session_timeout, and must stay in sync for longer; write more than that, or a shorter"
            " session_timeout",
            where("replica.lag.time.max.ms") or where("broker.session.timeout.ms"),
        )


BROKER, CONTROLLER, GATEWAY = "broker", "controller", "gateway"
_ROLES = (BROKER, CONTROLLER, GATEWAY)


def check_roles(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Raise ConfigError for unknown roles, and for a gateway without a cluster."""
    name = "broker.roles"
    roles = settings.broker.roles
    for role in roles:
        if role not in _ROLES:
            raise ConfigError(
                name, f"{role!r} is none of {', '.join(_ROLES)}{nearest(role, _ROLES)}", where(name)
            )
    if (BROKER in roles) is not (CONTROLLER in roles) or not roles:
        raise ConfigError(
            name,
            "must be broker,controller, with gateway or without, or gateway alone: every broker may be the controller",
            where(name),
        )
    if settings.is_gateway_alone and not gateway_bootstrap(settings):
        raise ConfigError(
            name,
            "a gateway alone needs the addresses of brokers: give --seeds, cluster.bootstrap_servers or BROKER_SERVICE",
            where(name),
        )


def gateway_bootstrap(settings: Settings) -> tuple[str, ...]:
    """The cluster's addresses for a gateway that runs alone."""
    return settings.cluster.bootstrap_servers or settings.proxy.bootstrap_addresses()
