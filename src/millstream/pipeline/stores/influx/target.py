"""Where an InfluxDB server is and how to talk to it; travels to the executors."""

import base64
import ipaddress
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import unquote, urlencode, urlsplit


@dataclass(frozen=True, slots=True)
class InfluxTarget:
    scheme: str
    host: str
    port: int
    base_path: str
    database: str
    """Of 2.x the bucket."""
    organisation: str | None = None
    """None for a 1.x server."""
    authorization: str | None = None
    gzip: bool = True
    post_points: int = 5_000
    request_timeout: timedelta = timedelta(seconds=10)
    retry_for: timedelta = timedelta(seconds=30)
    """After this long without success a write or a query gives up."""

    @property
    def is_v2(self) -> bool:
        return self.organisation is not None

    @property
    def address(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.base_path}"

    @property
    def write_path(self) -> str:
        if self.organisation is not None:
            options = {"org": self.organisation, "bucket": self.database, "precision": "us"}
            return f"{self.base_path}/api/v2/write?{urlencode(options)}"
        return f"{self.base_path}/write?{urlencode({'db': self.database, 'precision': 'u'})}"

    @property
    def query_path(self) -> str:
        # 2.x answers InfluxQL at the same place, for buckets that are mapped to a database (by default all are).
        return f"{self.base_path}/query"


def parse_target(
    address: str, *, database: str, organisation: str | None, token: str, gzip: bool | None
) -> InfluxTarget:
    """From `http://user:password@host:8086/path`; raises ValueError with what is wrong with it."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("what follows the kind is not an address such as http://127.0.0.1:8086")
    if not database:
        raise ValueError(
            "it names no database; add ?bucket=NAME" if organisation is not None else "add ?db=NAME"
        )
    return InfluxTarget(
        scheme=parts.scheme,
        host=parts.hostname,
        port=parts.port or (443 if parts.scheme == "https" else 8086),
        base_path=parts.path.rstrip("/"),
        database=database,
        organisation=organisation,
        authorization=_authorization(parts.username, parts.password, token),
        gzip=gzip if gzip is not None else not _is_loopback(parts.hostname),
    )


def _authorization(user: str | None, password: str | None, token: str) -> str | None:
    if token:
        return f"Token {token}"
    if user:
        pair = f"{unquote(user)}:{unquote(password or '')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return None


def _is_loopback(host: str) -> bool:
    """Compressing for a server on this machine takes the processor from it and saves nothing."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
