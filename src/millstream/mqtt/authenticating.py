"""Authentication of clients: pluggable, with an exchange of AUTH packets if the method has one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from millstream.doors.caller import ANONYMOUS, Principal
from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.reasons import Reason, Violation

if TYPE_CHECKING:
    from millstream.mqtt.client import Client
    from millstream.mqtt.wants import WantAuthentication

Ask = Callable[[bytes | None], Awaitable[bytes | None]]
"""Sends the client AUTH with this data, and returns the data of its answer."""


class Authenticated(NamedTuple):
    """`data` lets the client authenticate the server."""

    principal: Principal
    data: bytes | None = None


class Authenticator(Protocol):
    """`connect` has the client's method and first data. A Violation refuses the client with its reason.

    A connected client may authenticate again, but only as the same principal.
    """

    async def authenticate(self, connect: Connect, host: str, ask: Ask) -> Authenticated: ...


class Anyone:
    """Accepts every client, without a method."""

    async def authenticate(self, connect: Connect, host: str, ask: Ask) -> Authenticated:  # noqa: ARG002 - it asks nothing
        method = connect.properties.authentication_method
        if method is not None:
            raise Violation(
                Reason.BAD_AUTHENTICATION_METHOD, f"the authentication method {method!r} is not known"
            )
        return Authenticated(ANONYMOUS)


class Exchange:
    """The AUTH packets of one client."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._connect: Connect | None = None
        self._asked: asyncio.Future[bytes | None] | None = None

    async def begin(self, connect: Connect) -> Authenticated:
        self._connect = connect
        client = self._client
        return await client.shared.authenticator.authenticate(connect, client.wire.host, self._ask)

    async def _ask(self, data: bytes | None) -> bytes | None:
        self._asked = asyncio.get_running_loop().create_future()
        self._client.machine.challenge(data, self._client.shared.now_ms())
        self._client.flush()
        return await self._asked

    def answered(self, want: "WantAuthentication") -> None:
        """The client answered a challenge, or starts to authenticate again."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            asked.set_result(want.data)
        elif want.is_connected and self._connect is not None:
            self._client.spawn(self._again(self._connect, want.data))

    async def _again(self, connect: Connect, data: bytes | None) -> None:
        client = self._client
        renewed = replace(connect, properties=replace(connect.properties, authentication_data=data))
        try:
            found = await self.begin(renewed)
            if found.principal != client.caller.principal:
                raise Violation(Reason.NOT_AUTHORIZED, "AUTH names another principal than CONNECT")
        except Violation as violation:
            client.machine.close(violation.reason, violation.message)
        else:
            client.machine.authenticated(found.data)
        client.flush()

    def end(self) -> None:
        """The connection ends: no answer will come."""
        if self._asked is not None:
            self._asked.cancel()
