"""Settings of connections: addresses, security, sizes and times. Pickled with the reader, so plain values only."""

from dataclasses import dataclass, field
from enum import Enum

Address = tuple[str, int]


class Protocol(Enum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Tls:
    """Files or the PEM text itself; nothing set means the system's authorities and no client certificate."""

    ca_file: str | None = None
    ca_pem: str | None = None
    certificate_file: str | None = None
    certificate_pem: str | None = None
    key_file: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_endpoint: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Security:
    protocol: Protocol = Protocol.PLAINTEXT
    tls: Tls = Tls()
    sasl: Sasl | None = None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    bootstrap: tuple[Address, ...]
    security: Security = Security()
    client_id: str = "millstream"
    asks_node_itself: bool = False
    """Ask each node to answer for itself, even if it forwards clients' requests."""
    waits_for_topics: bool = False
    """Treat a missing topic as a retriable error."""
    connect_timeout_s: float = 5.0
    first_reply_timeout_s: float = 10.0
    read_committed: bool = False
    check_crcs: bool = True
    fetch_bytes: int = 4 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0
    retry_backoff_s: float = 0.1
    receive_buffer_bytes: int = 0

    @property
    def isolation_level(self) -> int:
        return 1 if self.read_committed else 0

    @property
    def addresses(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)
