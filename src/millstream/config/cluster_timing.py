"""Times of a cluster that must fit each other: how long a broker may be silent, and for how long it may answer."""

from collections.abc import Callable

from millstream.config.errors import ConfigError
from millstream.config.settings import Settings

LEASE_SHARE = 0.8
"""A broker answers reads for so much of a session after its last sign of life that a controller took.

The rest is for clocks that do not run alike: a fifth is hundreds of times what they differ by.
"""


def check_timing(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Raise ConfigError for times with which brokers could answer what is not the newest, or hardly at all."""
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
