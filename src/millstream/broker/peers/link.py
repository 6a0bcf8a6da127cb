"""One connection to another node, renewed whenever it breaks. What cannot be sent at once is dropped or refused.

Quorum messages may be lost, so none waits for a connection; the only queues are the system's send buffer and the
transport's, bounded below. A long message is sent part by part as the other side reads, with short ones in between.
"""

import asyncio
from collections.abc import Callable

import msgspec

from millstream.broker.peers.hello import Hello, Welcome, decode_welcome, encode
from millstream.cluster.founding_messages import AskState, decode_state
from millstream.cluster.raft.envelope import encode_parts
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import Message
from millstream.protocol.api import PEER_FOUNDING, PEER_HELLO, PEER_QUORUM
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.stream import RequestStream, TooManyInFlight

_SIZE_BYTES = 4
_MAX_UNSENT_BYTES = 8 << 20
_MAX_REPLY_BYTES = 256 << 20
_MAX_STATE_BYTES = 1 << 20
_MAX_CALLS = 1000
_CONNECT_SECONDS = 2.0
_GREETING_SECONDS = 1.0
_SILENCE_SECONDS = 2.0
_RETRY_SECONDS = 0.001
_UNCERTAIN_SECONDS = 0.1
_FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

OnGreeted = Callable[["PeerLink", Welcome], None]
LongMessageLost = Callable[[MemberKey], None]
OnEnded = Callable[[MemberKey], None]


class PeerLink:
    """`peer` is the member at the other end while it answers and does not refuse this node, else None."""

    def __init__(
        self,
        address: str,
        hello: Callable[[], Hello],
        on_greeted: OnGreeted,
        long_message_lost: LongMessageLost,
        on_ended: OnEnded,
        *,
        elapsed: Callable[[], float],
        longest_pause: float = LONGEST_PAUSE,
        is_seed: bool = False,
    ) -> None:
        """A seed's address may be its listener for clients: the seed is first asked where nodes connect.

        `on_ended` is called with a member that had answered when its address starts to refuse connections."""
        self._elapsed = elapsed
        self._longest_pause = longest_pause
        self._is_seed = is_seed
        self.address = address
        self.peer: MemberKey | None = None
        self._hello = hello
        self._on_greeted = on_greeted
        self._long_message_lost = long_message_lost
        self._on_ended = on_ended
        self._last_peer: MemberKey | None = None
        self.ended_member: MemberKey | None = None
        """The member that was last reached, while its address refuses connections."""
        self.ended_at = float("-inf")
        """When the last refused attempt to connect began."""
        self._greetings = 0
        self._reader: asyncio.StreamReader | None = None
        self._lost_at = float("-inf")
        self._writer: asyncio.StreamWriter | None = None
        self._stream: RequestStream[asyncio.Future[bytes]] = RequestStream(
            most_in_flight=_MAX_CALLS, most_reply_bytes=_MAX_REPLY_BYTES, in_order=False
        )
        self._messages = 0
        self._long: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Keep the connection until the task is cancelled."""
        pause = _FIRST_PAUSE
        while True:
            greetings = self._greetings
            tried_at = self._elapsed()
            try:
                await self._connect()
                pause = _FIRST_PAUSE
                await self._keep_greeting()
            except ConnectionRefusedError:
                self.ended_at = tried_at
                self._report_ended()
            except (OSError, EOFError, TimeoutError, UnicodeError, KafkaError, msgspec.MsgspecError):
                self.ended_member = None
            # A connection that worked is retried at once, to learn whether the process ended or only the connection.
            await asyncio.sleep(_RETRY_SECONDS if self._greetings > greetings else pause)
            pause = min(2 * pause, self._longest_pause)

    def _report_ended(self) -> None:
        """Report it once: a node that refuses connections may still be alive, and shows it in other ways."""
        peer, self._last_peer = self._last_peer, None
        if peer is not None:
            self.ended_member = peer
            self._on_ended(peer)

    def send(self, cluster_id: str, message: Message) -> bool:
        """Whether the message was sent; it may still be lost."""
        if self._writer is None or not self._has_room:
            return False
        self._messages += 1
        parts = list(encode_parts(cluster_id, self._messages, message))
        if len(parts) == 1:
            self._tell(self._writer, parts[0])
            return True
        if self._long is not None and not self._long.done():
            return False
        self._long = asyncio.create_task(
            self._send_long(self._writer, parts, message.to), name="long message"
        )
        return True

    def has_just_lost(self, node_id: int) -> bool:
        """Whether the connection to that node broke a moment ago, so that its state is not known yet."""
        if self._last_peer is None or self._last_peer.node_id != node_id:
            return False
        reader = self._reader
        if reader is not None:
            return reader.at_eof() or reader.exception() is not None
        return self.peer is None and asyncio.get_running_loop().time() - self._lost_at < _UNCERTAIN_SECONDS

    async def call(self, api_key: int, body: bytes, seconds: float) -> bytes:
        """The reply's body. BROKER_NOT_AVAILABLE when nothing was sent, REQUEST_TIMED_OUT when it may have been."""
        if not self._has_room:
            raise self._unreachable()
        assert self._writer is not None
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(self._stream.head(api_key, 0, len(body), reply) + body)
        except TooManyInFlight:
            raise self._unreachable() from None
        correlation = self._stream.correlation
        try:
            async with asyncio.timeout(seconds):
                return await reply
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the node at {self.address} did not answer within {seconds} s"
            ) from None
        finally:
            self._stream.forget(correlation)

    def _unreachable(self) -> KafkaError:
        return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"the node at {self.address} cannot be reached")

    async def _connect(self) -> None:
        address = await node_address(self.address, _CONNECT_SECONDS) if self._is_seed else self.address
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(_CONNECT_SECONDS):
            self._reader, self._writer = await asyncio.open_connection(host.strip("[]"), int(port))
        self._reading = asyncio.create_task(self._read(self._reader), name=f"replies of {self.address}")

    async def _keep_greeting(self) -> None:
        """The greeting is also the sign of life: a connection on which it is not answered is given up."""
        try:
            while not self._reading.done():
                welcome = decode_welcome(await self.call(PEER_HELLO, encode(self._hello()), _SILENCE_SECONDS))
                self.peer = welcome.member if welcome.refusal is None else None
                self._last_peer = self.peer
                self.ended_member = None
                self._greetings += 1
                self._on_greeted(self, welcome)
                await asyncio.wait([self._reading], timeout=_GREETING_SECONDS)
        finally:
            if self.peer is not None:
                self._lost_at = asyncio.get_running_loop().time()
            self.peer = self._reader = None
            writer, self._writer = self._writer, None
            self._reading.cancel()
            if writer is not None:
                writer.transport.abort()
            # Once more: a call may have come after the last reply and before the connection was given up.
            self._fail_calls()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = self._stream.reply_size(await reader.readexactly(_SIZE_BYTES))
                reply, body = self._stream.received(memoryview(await reader.readexactly(size)))
                if reply is not None and not reply.done():
                    reply.set_result(bytes(body))
        except (OSError, EOFError):
            return
        finally:
            self._fail_calls()

    def _fail_calls(self) -> None:
        error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the connection to {self.address} was lost")
        for reply in self._stream.give_up():
            if not reply.done():
                reply.set_exception(error)

    async def _send_long(self, writer: asyncio.StreamWriter, parts: list[bytes], to: MemberKey) -> None:
        try:
            for part in parts:
                await writer.drain()
                if self._writer is not writer or writer.transport.is_closing():
                    raise ConnectionError
                self._tell(writer, part)
            await writer.drain()
        except OSError:
            self._long_message_lost(to)

    def _tell(self, writer: asyncio.StreamWriter, part: bytes) -> None:
        writer.write(self._stream.head_without_reply(PEER_QUORUM, 0, len(part)) + part)

    @property
    def _has_room(self) -> bool:
        """Whether more may be written; uvloop raises when the other end is gone and that was not noticed yet."""
        transport = None if self._writer is None else self._writer.transport
        return (
            transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() <= _MAX_UNSENT_BYTES
        )


async def node_address(address: str, seconds: float) -> str:
    """Where the node at `address`, which may be for clients, takes other nodes' connections. OSError or EOFError when
    it does not answer."""
    host, _, port = address.rpartition(":")
    stream: RequestStream[None] = RequestStream(
        most_in_flight=1, most_reply_bytes=_MAX_STATE_BYTES, in_order=True
    )
    asked = encode(AskState())
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            writer.write(stream.head(PEER_FOUNDING, 0, len(asked), None) + asked)
            size = stream.reply_size(await reader.readexactly(4))
            _, state = stream.received(memoryview(await reader.readexactly(size)))
        finally:
            writer.close()
    return decode_state(state).nodes_at or address
