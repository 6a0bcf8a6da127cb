"""Durable offset commits a second: 64 groups, each sends the next commit when the one before is acknowledged.

What was acknowledged last must be what the broker has at the end, or the run is refused.
"""

import asyncio
import struct
import time

from bench.groups.connection import Connection, GroupError, find_coordinator, string
from bench.peers import Durability
from bench.scenarios.names import COMMITS_PER_SECOND, COMMITS_WITH_8_UNDER_WAY
from bench.session import Session

NAME = "commits"
GROUPS = 64
_CONNECTIONS = 8
_COMMIT, _FETCH = 8, 9


def run(session: Session) -> None:
    rounds = session.plan.rounds_of(full=5, quick=2)
    with session.millstream() as broker:
        topic = session.unique("commits")
        broker.create_topic(topic, 1, Durability.DURABLE)
        for name, under_way in ((COMMITS_PER_SECOND, 1), (COMMITS_WITH_8_UNDER_WAY, 8)):
            rates = []
            for number in range(rounds + 1):
                session.display.step(f"{name}, round {number} of {rounds}")
                rate = asyncio.run(_measure(broker.bootstrap, topic, under_way, session.plan.run_seconds))
                # The first one finds the internal topic's logs not yet there.
                rates += [rate] if number else []
            session.record_figure(NAME, name, "/s", rates)


async def _measure(bootstrap: str, topic: str, under_way: int, seconds: float) -> float:
    connections = [await Connection.open(bootstrap) for _ in range(_CONNECTIONS)]
    groups = [_Committer(connections[n % _CONNECTIONS], f"commits-{n}", topic) for n in range(GROUPS)]
    try:
        for group in groups:
            await find_coordinator(group.connection, group.name)
        began = time.perf_counter()
        await asyncio.gather(*(group.run(began + seconds) for group in groups for _ in range(under_way)))
        took = time.perf_counter() - began
        await asyncio.gather(*(group.check() for group in groups))
        return sum(group.acknowledged for group in groups) / took
    finally:
        for connection in connections:
            connection.close()


class _Committer:
    def __init__(self, connection: Connection, name: str, topic: str) -> None:
        self.connection, self.name, self._topic = connection, name, topic
        self.acknowledged = 0
        self._sent = 0
        self._head = string(name) + struct.pack(">i", -1) + string("") + b"\xff\xff"
        self._head += struct.pack(">i", 1) + string(topic) + struct.pack(">ii", 1, 0)

    async def run(self, until: float) -> None:
        """At least once: whoever never began has nothing to check."""
        is_over = False
        while not is_over:
            self._sent += 1
            body = self._head + struct.pack(">qih", self._sent, -1, 0)
            answer = await self.connection.call(_COMMIT, 7, body)
            (code,) = struct.unpack_from(">h", answer, len(answer) - 2)
            if code:
                raise GroupError(f"commit: error code {code}")
            self.acknowledged += 1
            is_over = time.perf_counter() >= until

    async def check(self) -> None:
        body = string(self.name) + struct.pack(">i", 1) + string(self._topic) + struct.pack(">ii", 1, 0)
        answer = await self.connection.call(_FETCH, 3, body)
        (stored,) = struct.unpack_from(">q", answer, 4 + 4 + 2 + len(self._topic) + 4 + 4)
        if stored != self._sent or self.acknowledged != self._sent:
            raise GroupError(
                f"{self.name}: {self.acknowledged} of {self._sent} acknowledged, {stored} is stored"
            )
