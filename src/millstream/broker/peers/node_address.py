"""Where a node takes other nodes' connections, asked at an address that is for anybody, such as a seed's."""

import asyncio

from millstream.cluster.founding_messages import AskState, decode_state, encode
from millstream.protocol.api import PEER_FOUNDING
from millstream.protocol.stream import RequestStream

_MOST_REPLY_BYTES = 1 << 20


async def node_address(address: str, seconds: float) -> str:
    """`address` itself where that is for nodes. OSError or EOFError when nobody answers."""
    host, _, port = address.rpartition(":")
    stream: RequestStream[None] = RequestStream(
        most_in_flight=1, most_reply_bytes=_MOST_REPLY_BYTES, in_order=True
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
