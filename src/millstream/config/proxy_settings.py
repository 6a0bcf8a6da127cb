"""The section `proxy`: the HTTP gateway, in a node or alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.config.kinds import ConfigType
from millstream.config.setting import Spelling, own_setting

_INT = ConfigType.INT
_LONG = ConfigType.LONG
_BROKER_PORT = 9092


def _duration(default_ms: int, documentation: str) -> int:
    field: int = own_setting(
        default_ms, documentation, kind=_LONG, spelling=Spelling.DURATION, minimum=1, maximum=86_400_000
    )
    return field


def _size(default: int, documentation: str) -> int:
    field: int = own_setting(default, documentation, kind=_LONG, spelling=Spelling.SIZE, minimum=1)
    return field


@dataclass(frozen=True, slots=True)
class ProxySettings:
    broker_service: str | None = own_setting(
        None,
        "What a gateway alone connects to first: a list of host:port, or a Kubernetes service whose pods"
        " <service>-0.<service> ... are the brokers.",
    )
    broker_count: int = own_setting(
        3, "How many pods `broker_service` stands for.", kind=_INT, minimum=1, maximum=1000
    )
    virtual_nodes: int = own_setting(
        150, "Points of each broker in the ring preview.", kind=_INT, minimum=1, maximum=10_000
    )
    max_partitions: int = own_setting(
        12, "The partition count of topics that the gateway creates.", kind=_INT, minimum=1, maximum=100_000
    )
    create_topics: bool = own_setting(
        True, "Whether /produce and /consume create a topic that does not exist.", kind=ConfigType.BOOLEAN
    )
    legacy: bool = own_setting(
        False,
        "Keep the error texts and codes of the first queue where they differ: a partition is required, and so on.",
        kind=ConfigType.BOOLEAN,
    )
    health_interval: int = _duration(30_000, "How often each broker is checked.")
    request_timeout: int = _duration(60_000, "How long a request may wait for its broker.")
    connection_timeout: int = _duration(
        10_000, "A broker that takes longer to answer a check counts as unhealthy."
    )
    failover_wait: int = _duration(
        10_000, "How long a message waits for its partition's next leader, or for room on the disk."
    )
    failover_buffer: int = _size(32 << 20, "How much may wait so; more is answered with 503.")
    max_in_flight: int = _size(
        64 << 20, "Messages not yet acknowledged by brokers; more is answered with 503."
    )
    max_body_size: int = _size(16 << 20, "The longest body of a request.")
    breaker_failures: int = own_setting(
        5, "After so many failures in a row a broker is left alone for `breaker_pause`.", kind=_INT, minimum=1
    )
    breaker_pause: int = _duration(5_000, "Then one request tries it again.")
    release_delay: int = _duration(
        2_000, "After a stream ended: how long its messages may still be acknowledged before others get them."
    )

    def bootstrap_addresses(self) -> tuple[str, ...]:
        """`broker_service` as host:port of each broker."""
        if self.broker_service is None:
            return ()
        return expand_service(self.broker_service, self.broker_count)


def expand_service(service: str, count: int) -> tuple[str, ...]:
    """A list of addresses as it is; a service as its pods, `<name>-0.<service>` to `<name>-(count - 1).<service>`.

    >>> expand_service("msg-queue.default.svc", 2)
    ('msg-queue-0.msg-queue.default.svc:9092', 'msg-queue-1.msg-queue.default.svc:9092')
    >>> expand_service("a:9092, b:9093", 2)
    ('a:9092', 'b:9093')
    """
    given = [each for each in re.split(r"[,\s]+", service.strip()) if each]
    if len(given) > 1 or re.search(r":\d+$", service.strip()):
        return tuple(each if re.search(r":\d+$", each) else f"{each}:{_BROKER_PORT}" for each in given)
    name = service.strip().partition(".")[0]
    return tuple(f"{name}-{number}.{service.strip()}:{_BROKER_PORT}" for number in range(count))


# The names that deployments of the first gateway use, and what each sets here. Times there are seconds.
_VARIABLES = {
    "PORT": "http.port",
    "BROKER_SERVICE": "proxy.broker_service",
    "BROKER_COUNT": "proxy.broker_count",
    "VIRTUAL_NODES": "proxy.virtual_nodes",
    "MAX_PARTITIONS": "proxy.max_partitions",
    "HEALTH_INTERVAL_SECONDS": "proxy.health_interval",
    "REQUEST_TIMEOUT_SECONDS": "proxy.request_timeout",
    "CONNECTION_TIMEOUT_SECONDS": "proxy.connection_timeout",
}


def proxy_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """`{"proxy.max_partitions": "12"}` of the plain variables that are set; for a gateway alone."""
    found = {}
    for variable, name in _VARIABLES.items():
        # Kubernetes gives a service named "broker" the variables BROKER_SERVICE_HOST and so on, never these.
        value = environ.get(variable, "").strip()
        if value:
            found[name] = f"{value}s" if variable.endswith("_SECONDS") and value.isdigit() else value
    return found
