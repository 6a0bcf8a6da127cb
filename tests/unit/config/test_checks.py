"""A broker must have stopped to answer when others may take over, and must not stop for one late heartbeat."""

import pytest

from millstream.config.checks import gateway_bootstrap
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


def test_a_process_is_all_of_it_by_default() -> None:
    settings = load_settings()
    assert settings.broker.roles == ("broker", "controller", "gateway")
    assert not settings.is_gateway_alone


@pytest.mark.parametrize("roles", ["broker", "controller", "controller,gateway", "broker,gateway", ""])
def test_every_broker_may_be_the_controller(roles: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.roles"):
        load_settings(flags={"broker.roles": roles})


def test_a_role_that_there_is_not_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"'gatway'.*did you mean 'gateway'"):
        load_settings(flags={"broker.roles": "gatway"})


def test_a_gateway_alone_needs_to_know_where_brokers_are() -> None:
    with pytest.raises(ConfigError, match="addresses of brokers"):
        load_settings(flags={"broker.roles": "gateway"})
    by_seeds = load_settings(flags={"broker.roles": "gateway", "cluster.bootstrap_servers": "a:1,b:2"})
    assert gateway_bootstrap(by_seeds) == ("a:1", "b:2")
    by_service = load_settings(flags={"broker.roles": "gateway", "proxy.broker_service": "a:1"})
    assert gateway_bootstrap(by_service) == ("a:1",)
    assert by_service.is_gateway_alone
