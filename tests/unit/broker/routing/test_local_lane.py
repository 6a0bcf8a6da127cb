"""A client's forwarded requests to the node that forwards them: as in order as those to any other."""

import asyncio
from typing import Any, cast

from millstream.broker.routing.lane import LaneLost
from millstream.broker.routing.local_lane import LocalCall, LocalLane
from millstream.doors.caller import Caller
from millstream.protocol.api import APIS, PRODUCE

VERSION = 9


class Node:
    """The dispatcher, and the client's connection; handlers wait until they are told to go on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = self.loop.time
        self.peer = "10.0.0.1:4000"
        self.blocks = 0
        self.begun: list[tuple[bytes, LocalCall]] = []
        self.answers: list[bytes] = []
        self.lane = LocalLane(cast(Any, self), cast(Any, self), self.loop)

    def served(self, _key: int) -> Any:
        return None

    def caller(self, client_id: bytes) -> Caller:
        return Caller(client_id=client_id.decode())

    def serve(self, call: LocalCall, request: memoryview, _position: int) -> None:
        self.begun.append((bytes(request), call))
        call.way.block()

    def block(self) -> None:
        self.blocks += 1

    def unblock(self) -> None:
        self.blocks -= 1

    def send(self, body: bytes) -> None:
        def done(reply: memoryview | LaneLost) -> None:
            self.answers.append(b"lost" if isinstance(reply, LaneLost) else bytes(reply))

        self.lane.send(APIS[PRODUCE], VERSION, "c", (body,), None, done)

    async def finish(self, number: int) -> None:
        body, call = self.begun[number]
        call.reply_body([body + b"!"])
        call.way.unblock()
        await asyncio.sleep(0)


def test_a_request_that_is_held_up_holds_up_those_behind_it() -> None:
    async def story() -> None:
        node = Node()
        for body in (b"1", b"2", b"3"):
            node.send(body)
        assert [body for body, _ in node.begun] == [b"1"]
        assert node.begun[0][1].caller.client_id == "c"
        assert node.blocks == 1, "and the client"
        await node.finish(0)
        assert [body for body, _ in node.begun] == [b"1", b"2"]
        await node.finish(1)
        await node.finish(2)
        assert node.answers == [b"\x001!", b"\x002!", b"\x003!"]
        assert node.blocks == 0

    asyncio.run(story())


def test_what_waits_is_lost_with_the_lane() -> None:
    async def story() -> None:
        node = Node()
        node.send(b"1")
        node.send(b"2")
        node.lane.close()
        await asyncio.sleep(0)
        assert node.answers == [b"lost", b"lost"]
        await node.finish(0)
        assert len(node.begun) == 1

    asyncio.run(story())
