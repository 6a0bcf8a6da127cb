"""A broker must have stopped to answer when others may take over, and must not stop for one late heartbeat."""

import pytest

from millstream.config.errors import ConfigError
from millstream.config.load import load_settings
from millstream.config.settings import Settings

SEVERAL = {"cluster.bootstrap_servers": "a:9092,b:9092,c:9092"}


def test_the_defaults_fit() -> None:
    cluster = load_settings(flags=SEVERAL).cluster
    assert (cluster.session_timeout, cluster.heartbeat_interval) == (1500, 200)


def test_a_lease_outlasts_two_heartbeats() -> None:
    load_settings(flags={**SEVERAL, "cluster.session_timeout": "500ms"})
    with pytest.raises(ConfigError, match=r"write 200ms or less"):
        load_settings(
            flags={**SEVERAL, "cluster.session_timeout": "500ms", "cluster.heartbeat_interval": "201ms"}
        )


def test_a_follower_may_lag_for_longer_than_a_leader_may_answer() -> None:
    with pytest.raises(ConfigError, match=r"replica_lag_time_max.* for 8000ms"):
        load_settings(
            flags={
                **SEVERAL,
                "cluster.session_timeout": "10s",
                "replication.replica_lag_time_max": "8s",
            }
        )


def test_a_node_alone_has_no_other_to_make_way_for() -> None:
    settings: Settings = load_settings(flags={"cluster.session_timeout": "50ms"})
    assert settings.cluster.session_timeout == 50
