"""Settings that hold addresses: whether they are any."""

from collections.abc import Callable

from millstream.config.errors import ConfigError
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
