"""One kept-alive HTTP connection to an InfluxDB server, with bounded retries.

It uses `http.client`: one request at a time is enough, and on executors only the standard library is certain to be
installed.
"""

import base64
import gzip
import http.client
import ipaddress
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import unquote, urlencode, urlsplit

from millstream.pipeline.stores.base import StoreError, StoreUnavailable

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_OVERLOADED = frozenset({408, 425, 429})
_MISCONFIGURED = frozenset({401, 403, 404, 405})


@dataclass(frozen=True, slots=True)
class InfluxTarget:
    scheme: str
    host: str
    port: int
    base_path: str
    database: str
    """The database, or for a 2.x server the bucket."""
    organisation: str | None = None
    """None for a 1.x server."""
    authorization: str | None = None
    gzip: bool = True
    post_points: int = 5_000
    request_timeout: timedelta = timedelta(seconds=10)
    retry_for: timedelta = timedelta(seconds=30)
    """How long a write or a query is retried before it fails."""

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
        # 2.x answers InfluxQL at the same path, for buckets that are mapped to a database (by default all are).
        return f"{self.base_path}/query"


def parse_target(address: str, options: Mapping[str, str], token: str, *, is_v2: bool) -> InfluxTarget:
    """The target in `http://user:password@host:8086/path`; a ValueError says what is wrong with the address."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("what follows the kind is not an address such as http://127.0.0.1:8086")
    database = options.get("bucket" if is_v2 else "db", "")
    if not database:
        raise ValueError("it names no database; add ?bucket=NAME" if is_v2 else "add ?db=NAME")
    gzip = options.get("gzip")
    if gzip not in {None, "true", "false"}:
        raise ValueError(f"gzip is {gzip!r}; it may be true or false")
    return InfluxTarget(
        scheme=parts.scheme,
        host=parts.hostname,
        port=parts.port or (443 if parts.scheme == "https" else 8086),
        base_path=parts.path.rstrip("/"),
        database=database,
        organisation=options.get("org", "") if is_v2 else None,
        authorization=_authorization(parts.username, parts.password, token),
        gzip=not _is_loopback(parts.hostname) if gzip is None else gzip == "true",
    )


def _authorization(user: str | None, password: str | None, token: str) -> str | None:
    if token:
        return f"Token {token}"
    if user:
        pair = f"{unquote(user)}:{unquote(password or '')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return None


def _is_loopback(host: str) -> bool:
    """Whether the server is on this machine: compression would then only cost processor time."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A permanent refusal: the server understood the request, and a retry cannot help."""

    status: int
    reason: str


class QueryRefused(StoreError):
    """The server does not accept a query."""


class InfluxConnection:
    def __init__(self, target: InfluxTarget) -> None:
        self.target = target
        self._http: http.client.HTTPConnection | None = None
        self._random = random.Random()  # noqa: S311 - jitter

    def write(self, lines: bytes | memoryview) -> Refusal | None:
        """Post lines; None when all are stored. Raises StoreUnavailable after the bounded retries."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        body: bytes | memoryview = lines
        if self.target.gzip:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(lines, 1)
        status, answer = self._post_until_answered(self.target.write_path, body, headers)
        return None if status < 300 else Refusal(status, _reason(answer))

    def query(self, path: str, body: bytes) -> bytes:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, answer = self._post_until_answered(path, body, headers)
        if status >= 300:
            raise QueryRefused(
                f"InfluxDB at {self.target.address} refused a query ({status}): {_reason(answer)}"
            )
        return answer

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _post_until_answered(
        self, path: str, body: bytes | memoryview, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        give_up_at = time.monotonic() + self.target.retry_for.total_seconds()
        pause_s = _FIRST_PAUSE_S
        while True:
            wait_s = 0.0
            try:
                status, answer, retry_after_s = self._request("POST", path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            else:
                if status < 500 and status not in _OVERLOADED | _MISCONFIGURED:
                    return status, answer
                problem = f"{status} {_reason(answer)}"
                if status in _MISCONFIGURED:
                    raise StoreUnavailable(
                        f"InfluxDB at {self.target.address} does not let us at {self.target.database!r}: {problem};"
                        " check the name, the token and the permissions"
                    )
                wait_s = retry_after_s
            wait_s = max(wait_s, self._random.uniform(pause_s / 2, pause_s))
            if time.monotonic() + wait_s > give_up_at:
                raise StoreUnavailable(
                    f"InfluxDB at {self.target.address} has not taken a request for"
                    f" {self.target.retry_for.total_seconds():g} s: {problem}; is it running?"
                )
            time.sleep(wait_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _request(
        self, method: str, path: str, body: bytes | memoryview, headers: dict[str, str]
    ) -> tuple[int, bytes, float]:
        target = self.target
        if self._http is None:
            kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
            self._http = kind(target.host, target.port, timeout=target.request_timeout.total_seconds())
        if target.authorization is not None:
            headers = {**headers, "Authorization": target.authorization}
        self._http.request(method, path, body, {**headers, "Content-Length": str(len(body))})
        response = self._http.getresponse()
        answer = response.read()
        if response.will_close:
            self.close()
        return response.status, answer, _seconds(response.getheader("Retry-After"))


def _seconds(header: str | None) -> float:
    return min(float(header), _LONGEST_PAUSE_S) if header is not None and header.isdecimal() else 0.0


def _reason(answer: bytes) -> str:
    """The server's error message: 1.x has it in `error`, 2.x in `message`."""
    text = answer.decode(errors="replace").strip()
    try:
        said = json.loads(text)
    except ValueError:
        return text[:1000]
    if isinstance(said, dict):
        text = str(said.get("error") or said.get("message") or text)
    return text[:1000]
