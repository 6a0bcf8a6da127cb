"""Access control: Host and Origin keep out web pages of other sites, a token everyone without it.

A page of another site can make a browser send requests here. With a host name that resolves to this machine (DNS
rebinding) it could read the answers too. So a Host must be one that no stranger can own: an address, a name without a
dot, a name under a suffix that is never sold, or one that the settings allow.
"""

import hmac
import ipaddress
import socket
from collections.abc import Collection

from millstream.http.messages import Problem, Request

_PRIVATE_SUFFIXES = (
    ".localhost", ".local", ".internal", ".svc", ".cluster.local", ".home.arpa", ".test", ".invalid", ".lan",
)  # fmt: skip
_MAX_KNOWN = 1_000
_ADVICE = "http.allowed_hosts, or pipeline.api_allowed_hosts of the query API, can add it"


class Hosts:
    """`allowed` are further names: `mq.example.com`, `.example.com` for all names under it, `*` for every name."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._names = {name.lower() for name in allowed}
        self._suffixes = (*_PRIVATE_SUFFIXES, *(name for name in self._names if name.startswith(".")))
        self._fine: set[bytes] = set()

    def check(self, given: bytes) -> None:
        """Raises `Problem` for a Host header that is not allowed."""
        if given in self._fine:
            return
        host = _without_port(given.decode("latin-1").lower())
        if not self._is_allowed(host):
            said = repr(host[:80])
            raise Problem(421, f"this server does not go by the name {said}; {_ADVICE}")
        if len(self._fine) < _MAX_KNOWN:
            self._fine.add(given)

    def check_origin(self, origin: bytes, host: bytes) -> None:
        """Raises `Problem` if a web page of another site requests a change."""
        _, _, place = origin.partition(b"://")
        if place.lower() != host.lower():
            raise Problem(403, "a web page of another origin may not change anything here")

    def _is_allowed(self, host: str) -> bool:
        if "*" in self._names or host in self._names:
            return True
        name = host.rstrip(".")
        if not name or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            return _is_address(host.strip("[]"))
        return "." not in name or name.endswith(self._suffixes) or _is_address(name)


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class UnfitToken(ValueError):
    """The token cannot be sent in a header."""


def check_token(token: str) -> None:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UnfitToken("it must have printable ASCII characters only, and no blanks")


def has_token(request: Request, token: str) -> bool:
    """Whether the request has the token as `Authorization: Bearer TOKEN` or `X-API-Key: TOKEN`."""
    scheme, _, bearer = request.header("authorization").partition(" ")
    wanted = token.encode()
    given = [request.header("x-api-key"), bearer if scheme.lower() == "bearer" else ""]
    return any(hmac.compare_digest(each.strip().encode(), wanted) for each in given)


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach a listener on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)
