"""What a process does: which roles go together, and what a gateway alone needs."""

import pytest

from millstream.config.checks import gateway_bootstrap
from millstream.config.errors import ConfigError
from millstream.config.load import load_settings


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
