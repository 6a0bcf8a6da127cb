"""Changes of the metadata on three nodes: many at once, many one by one, and after the controller was killed."""

import asyncio
import struct
import time

from bench.groups.connection import Connection, string
from bench.metadata_view import ClusterState
from bench.peers import PeerError
from bench.peers.cluster import Cluster
from bench.scenarios.cluster_names import (
    A_NEW_ONE_ANSWERS,
    ALL_LED,
    BACK_IN_SYNC,
    changes_name,
    controller_name,
    create_answered_name,
    create_name,
)
from bench.session import Session

NAME = "metadata"
_CREATE_TOPICS = 19
_PARTITIONS, _REPLICAS = 12, 3
_TIMEOUT_MS = 60_000
_NODES = (1, 2, 3)
_REQUEST_TIMED_OUT, _TOPIC_ALREADY_EXISTS = 7, 36


class _Refused(PeerError):
    def __init__(self, code: int) -> None:
        super().__init__(f"creating a topic: error code {code}")
        self.code = code


def run(session: Session) -> None:
    topics = 50 if session.plan.quick else 1_000
    partitions = topics * _PARTITIONS
    with session.cluster() as cluster:
        _count_changes(session, cluster, "few partitions")
        session.display.step(f"creating {topics:,} topics")
        answered, known = asyncio.run(_create_many(cluster, topics))
        session.record_figure(NAME, create_answered_name(topics), "s", [answered])
        session.record_figure(NAME, create_name(topics), "s", [known])
        _count_changes(session, cluster, f"{partitions:,} partitions")
        rounds = session.plan.rounds_of(full=3, quick=1)
        times: dict[str, list[float]] = {A_NEW_ONE_ANSWERS: [], ALL_LED: [], BACK_IN_SYNC: []}
        for number in range(rounds):
            session.display.step(f"{partitions:,} partitions: controller killed, {number + 1} of {rounds}")
            for what, seconds in asyncio.run(_kill_controller(cluster, session.unique("after"))).items():
                times[what].append(seconds)
    for what, seconds in times.items():
        session.record_figure(NAME, controller_name(what, partitions), "s", seconds)


def _count_changes(session: Session, cluster: Cluster, partitions: str) -> None:
    for under_way in (1, 16):
        session.display.step(f"one topic a request, {under_way} under way, {partitions}")
        prefix = session.unique("one-by-one")
        rate = asyncio.run(_changes_per_second(cluster, prefix, under_way, session.plan.run_seconds))
        session.record_figure(NAME, changes_name(under_way, partitions), "/s", [rate])


async def _changes_per_second(cluster: Cluster, prefix: str, under_way: int, seconds: float) -> float:
    """Connections in turn to all nodes: two of three forward what they are asked for to the controller."""
    addresses = [cluster.address(_NODES[number % len(_NODES)]) for number in range(under_way)]
    connections = [await Connection.open(address) for address in addresses]
    began = time.perf_counter()

    async def create(number: int) -> int:
        count = 0
        while time.perf_counter() < began + seconds:
            await _create(connections[number], [f"{prefix}-{number}-{count}"], 1)
            count += 1
        return count

    try:
        created = await asyncio.gather(*(create(number) for number in range(under_way)))
        return sum(created) / (time.perf_counter() - began)
    finally:
        for connection in connections:
            connection.close()


async def _create_many(cluster: Cluster, count: int) -> tuple[float, float]:
    """Seconds until the request was answered, and until every node knew of all partitions and their leaders."""
    names = [f"many-{number:04}" for number in range(count)]
    connection = await Connection.open(cluster.address(1))
    began = time.perf_counter()
    await _create(connection, names, _PARTITIONS)
    answered = time.perf_counter() - began
    connection.close()

    def has_all(state: ClusterState) -> bool:
        return all(len(state.topics.get(name, {})) == _PARTITIONS for name in names) and all(
            each.is_whole for each in state.partitions()
        )

    known = max(cluster.wait(number, has_all, "all new topics") for number in _NODES)
    return answered, known - began


async def _create(connection: Connection, names: list[str], partitions: int) -> None:
    """CreateTopics, version 2."""
    shape = struct.pack(">ihii", partitions, _REPLICAS, 0, 0)
    body = struct.pack(">i", len(names)) + b"".join(string(name) + shape for name in names)
    answer = await connection.call(_CREATE_TOPICS, 2, body + struct.pack(">ib", _TIMEOUT_MS, 0))
    (count,) = struct.unpack_from(">i", answer, 4)
    at = 8
    for _ in range(count):
        (length,) = struct.unpack_from(">h", answer, at)
        code, message_length = struct.unpack_from(">hh", answer, at + 2 + length)
        if code:
            raise _Refused(code)
        at += 2 + length + 4 + max(0, message_length)


async def _create_in_the_end(connection: Connection, topic: str) -> None:
    """As clients do: where the outcome is unknown, ask again, and find perhaps that it is done."""
    while True:
        try:
            await _create(connection, [topic], 1)
        except _Refused as refused:
            if refused.code == _TOPIC_ALREADY_EXISTS:
                return
            if refused.code != _REQUEST_TIMED_OUT:
                raise
        else:
            return


async def _kill_controller(cluster: Cluster, topic: str) -> dict[str, float]:
    state = cluster.look(1)
    victim, sample = state.controller, sorted(state.topics)[:: max(1, len(state.topics) // 5)]
    survivors = [number for number in _NODES if number != victim]

    def is_led(state: ClusterState) -> bool:
        return all(each.leader in survivors for each in state.partitions())

    def all_led() -> float:
        # A few first: to look at all of them many times a second would slow the nodes down.
        for number in survivors:
            cluster.wait(number, is_led, "a leader for some partitions", sample)
        return max(cluster.wait(number, is_led, "a leader for every partition") for number in survivors)

    connection = await Connection.open(cluster.address(survivors[0]))
    killed = time.perf_counter()
    await asyncio.to_thread(cluster.kill, victim)

    async def change() -> float:
        await _create_in_the_end(connection, topic)
        return time.perf_counter()

    changed, led = await asyncio.gather(change(), asyncio.to_thread(all_led))
    connection.close()
    spawned = cluster.launch(victim).spawned_at
    back = await asyncio.to_thread(
        cluster.wait,
        survivors[0],
        lambda state: all(each.is_whole for each in state.partitions()),
        "all partitions in sync again",
    )
    return {A_NEW_ONE_ANSWERS: changed - killed, ALL_LED: led - killed, BACK_IN_SYNC: back - spawned}
