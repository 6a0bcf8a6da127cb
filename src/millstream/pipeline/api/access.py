"""Who may ask: everybody on this machine, or those who have the token."""

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from millstream.pipeline.api.answers import json_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_GUARDED = "/api/"
"""The data. The pages are the same for everybody, and a load balancer asks for /health without a token."""


class UnfitToken(ValueError):
    """A token that cannot be sent in a header."""


def check_token(token: str) -> None:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UnfitToken("it must have printable ASCII characters only, and no blanks")


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


class BearerToken:
    """Lets requests for data pass that carry the token, `Authorization: Bearer TOKEN`."""

    def __init__(self, app: "ASGIApp", token: str) -> None:
        self._app = app
        self._token = token.encode("ascii")

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_GUARDED) or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        error = "this API needs a token; send it in the header Authorization: Bearer TOKEN"
        headers = {"WWW-Authenticate": "Bearer"}
        await json_response({"error": error}, 401, headers)(scope, receive, send)

    def _is_known(self, scope: "Scope") -> bool:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)
