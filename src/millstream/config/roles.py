"""What a process does in its cluster: which roles go together."""

from collections.abc import Callable

from millstream.config.errors import ConfigError, nearest
from millstream.config.settings import Settings

BROKER, CONTROLLER, GATEWAY = "broker", "controller", "gateway"
_ROLES = (BROKER, CONTROLLER, GATEWAY)


def check_roles(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Raise ConfigError for roles that no process has, and for a gateway that knows no cluster."""
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
    """Where a gateway alone looks for the cluster."""
    return settings.cluster.bootstrap_servers or settings.proxy.bootstrap_addresses()
