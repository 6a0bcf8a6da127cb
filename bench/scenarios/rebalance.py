"""How long a group takes to its first whole assignment, and again after one of its members has fallen silent.

Members heartbeat every 100 ms and react at once. Raw members cost next to nothing; librdkafka's are shown for
small groups, with their own pauses in the figure. The time after a loss is counted from the end of the lost
member's session, the one delay that is configured there.
"""

import asyncio
import time
from collections.abc import Sequence

from bench.groups.classic import ClassicMember
from bench.groups.confluent import ConfluentMember
from bench.groups.connection import Connection, GroupError, find_coordinator
from bench.groups.kip848 import Kip848Member
from bench.peers import Durability
from bench.peers.millstream import Millstream
from bench.scenarios.names import rebalance_join, rebalance_loss
from bench.session import Session

NAME = "rebalance"
PARTITIONS_PER_MEMBER = 2
_INTERVAL_S = 0.1
_SESSION_MS = 2_000
_PATIENCE_S = 60.0
_SETTINGS = {
    "kafka.group.initial.rebalance.delay.ms": "0",
    "kafka.group.min.session.timeout.ms": str(_SESSION_MS),
    "kafka.group.consumer.session.timeout.ms": str(_SESSION_MS),
    "kafka.group.consumer.heartbeat.interval.ms": str(int(_INTERVAL_S * 1000)),
}

Member = Kip848Member | ClassicMember


def run(session: Session) -> None:
    rounds = session.plan.rounds_of(full=5, quick=2)
    with session.millstream(_SETTINGS) as broker:
        for protocol in ("consumer", "classic"):
            for count in (1, 10, 100):
                joins, losses = [], []
                for number in range(rounds):
                    session.display.step(f"{protocol}, {count} members, round {number + 1} of {rounds}")
                    topic = session.unique("rebalance")
                    broker.create_topic(topic, count * PARTITIONS_PER_MEMBER, Durability.RELAXED)
                    join, loss = asyncio.run(_measure(broker, protocol, topic, count))
                    joins.append(join)
                    losses += [] if loss is None else [loss]
                    broker.delete_topic(topic)
                session.record_figure(NAME, rebalance_join(protocol, count), "s", joins)
                if losses:
                    session.record_figure(NAME, rebalance_loss(protocol, count), "s", losses)
            for count in (1, 10):
                session.display.step(f"{protocol}, {count} librdkafka consumers")
                joins = [_measure_confluent(session, broker, protocol, count) for _ in range(rounds)]
                name = rebalance_join(protocol, count, client="librdkafka")
                session.record_figure(NAME, name, "s", joins)


async def _measure(broker: Millstream, protocol: str, topic: str, count: int) -> tuple[float, float | None]:
    """Seconds from the first request to the whole assignment, and from a session's end to the next one."""
    connections = [await Connection.open(broker.bootstrap) for _ in range(count)]
    partitions = count * PARTITIONS_PER_MEMBER
    group = f"group-{topic}"
    await find_coordinator(connections[0], group)
    members: list[Member] = [
        Kip848Member(connection, group, f"member-{number}", topic, _INTERVAL_S)
        if protocol == "consumer"
        else ClassicMember(connection, group, partitions, _INTERVAL_S, _SESSION_MS)
        for number, connection in enumerate(connections)
    ]
    try:
        began = time.perf_counter()
        for member in members:
            member.start()
        joined = await _until_shared(members, partitions) - began
        if count == 1:
            return joined, None
        await asyncio.sleep(3 * _INTERVAL_S)
        lost = members.pop(count // 2)
        lost.vanish()
        session_ends = lost.heard_at + _SESSION_MS / 1000
        return joined, max(0.0, await _until_shared(members, partitions) - session_ends)
    finally:
        for member in members:
            member.vanish()
        for connection in connections:
            connection.close()


async def _until_shared(members: Sequence[Member], partitions: int) -> float:
    deadline = time.perf_counter() + _PATIENCE_S
    while not _is_shared([member.assigned for member in members], partitions):
        for member in members:
            member.check()
        if time.perf_counter() > deadline:
            raise GroupError(f"{len(members)} members did not come to rest within {_PATIENCE_S:.0f} s")
        await asyncio.sleep(0.005)
    return time.perf_counter()


def _measure_confluent(session: Session, broker: Millstream, protocol: str, count: int) -> float:
    topic = session.unique("rebalance")
    partitions = count * PARTITIONS_PER_MEMBER
    broker.create_topic(topic, partitions, Durability.RELAXED)
    began = time.perf_counter()
    members = [
        ConfluentMember(broker.bootstrap, f"group-{topic}", topic, protocol, 10_000) for _ in range(count)
    ]
    try:
        while not _is_shared([member.poll() for member in members], partitions):
            if time.perf_counter() - began > _PATIENCE_S:
                raise GroupError(f"{count} consumers did not come to rest within {_PATIENCE_S:.0f} s")
            time.sleep(0.005)
        return time.perf_counter() - began
    finally:
        for member in members:
            member.close()
        broker.delete_topic(topic)


def _is_shared(assigned: Sequence[frozenset[int]], partitions: int) -> bool:
    return all(assigned) and sorted(p for each in assigned for p in each) == list(range(partitions))
