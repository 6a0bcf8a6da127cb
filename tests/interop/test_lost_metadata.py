"""A member whose connections are lost at the worst moment: as it asks for the topics that it wants to join for.

librdkafka (2.16) then waits for its next refresh of the metadata, whatever broker it talks to: five minutes by its own
default. Our consumer, and `millstream consume --group`, refresh every five seconds.
"""

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from millstream.client import Consumer, ConsumerConfig, OffsetResetPolicy, Producer, ProducerConfig
from millstream.protocol.api import METADATA
from millstream.runtime.ports import ReservedPorts
from support.cli import Cli
from support.node import NodeProcess
from support.reading import read

TOPIC = "wanted"


class Relay:
    """Passes requests on to a node. At the first that asks for the topic's metadata it closes all connections."""

    def __init__(self, node: str) -> None:
        self._host, port = node.split(":")
        self._port = int(port)
        self._clients: set[asyncio.StreamWriter] = set()
        self.has_cut = False

    def start(self, host: str, port: int) -> Callable[[], None]:
        """On a thread of its own; call what is returned to end it."""
        is_up, loop, is_over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

        async def run() -> None:
            async with await asyncio.start_server(self._serve, host, port):
                is_up.set()
                await is_over.wait()

        def run_to_the_end() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(run())

        thread = threading.Thread(target=run_to_the_end)
        thread.start()
        assert is_up.wait(60)

        def stop() -> None:
            loop.call_soon_threadsafe(is_over.set)
            thread.join(60)

        return stop

    async def _serve(self, client: asyncio.StreamReader, reply: asyncio.StreamWriter) -> None:
        replies, node = await asyncio.open_connection(self._host, self._port)
        self._clients.add(reply)
        answering = asyncio.create_task(self._answer(replies, reply))
        try:
            while True:
                size = await client.readexactly(4)
                request = await client.readexactly(*struct.unpack(">i", size))
                if self._is_the_moment(request):
                    self.has_cut = True
                    for each in self._clients:
                        each.transport.abort()
                    return
                node.write(size + request)
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            answering.cancel()
            self._clients.discard(reply)
            for end in (node, reply):
                end.transport.abort()

    def _is_the_moment(self, request: bytes) -> bool:
        return (
            not self.has_cut and request.startswith(struct.pack(">h", METADATA)) and TOPIC.encode() in request
        )

    async def _answer(self, replies: asyncio.StreamReader, reply: asyncio.StreamWriter) -> None:
        while answer := await replies.read(65_536):
            reply.write(answer)


@pytest.fixture
def servers(start_node: Callable[..., NodeProcess]) -> Iterator[str]:
    """A node with one message that clients reach through a relay alone."""
    with ReservedPorts() as ports:
        (address,) = ports.addresses
        host, port = address.split(":")
        node = start_node(settings={"broker.advertised_host": host, "broker.advertised_port": port})
        relay = Relay(node.listen)
        relay.has_cut = True
        stop = relay.start(host, int(port))
        with Producer(ProducerConfig(bootstrap_servers=address)) as producer:
            producer.send(TOPIC, "here").result(90)
        relay.has_cut = False
        yield address
        stop()
        assert relay.has_cut


def test_our_consumer_joins_soon_after(servers: str) -> None:
    config = ConsumerConfig(
        bootstrap_servers=servers, group_id="late", auto_offset_reset=OffsetResetPolicy.EARLIEST
    )
    with Consumer(config) as consumer:
        consumer.subscribe([TOPIC])
        assert [message.value for message in read(consumer, 1)] == [b"here"]


# As long as the one before it, by the same setting.
@pytest.mark.long
def test_the_consume_command_joins_soon_after(servers: str) -> None:
    read_by_group = Cli(servers).ok("consume", TOPIC, "--group", "late", "--count", "1", "--timeout", "90")
    assert b"here" in read_by_group
