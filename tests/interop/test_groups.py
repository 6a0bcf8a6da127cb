"""Real clients in groups: alone, mixed, crashing, coming back; every partition has one reader, nothing is skipped."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as KpRoundRobin
from kafka.errors import KafkaError as KpKafkaError

from support.members.judgement import each_partition_had_one_owner_at_a_time
from support.members.team import Told
from support.node import NodeProcess

PATIENCE_S = 90.0
Place = tuple[str, int]


class Member(Protocol):
    def read(self) -> list[tuple[int, int]]:
        """Some more records, as partition and offset; committed, unless the group changed meanwhile."""
        ...

    def owned(self) -> set[int]: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                "partition.assignment.strategy": "roundrobin",
                **config,
            }
        )
        self.consumer.subscribe([topic])

    def read(self) -> list[tuple[int, int]]:
        records = [m for m in self.consumer.consume(100, 0.1) if m.error() is None]
        if records:
            with suppress(KafkaException):
                self.consumer.commit(asynchronous=False)
        return [(m.partition(), m.offset()) for m in records]

    def owned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


class NewProtocol(Confluent):
    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **config,
            }
        )
        self.consumer.subscribe([topic])


class KafkaPython:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[KpRoundRobin],
        )

    def read(self) -> list[tuple[int, int]]:
        polled = self.consumer.poll(100)
        if polled:
            with suppress(KpKafkaError):
                self.consumer.commit()
        return [(place.partition, record.offset) for place, records in polled.items() for record in records]

    def owned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


class Aio:
    """aiokafka on a loop of its own."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                partition_assignment_strategy=(AioRoundRobin,),
            )
            await consumer.start()
            return consumer

        self.consumer = self._run(start())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def read(self) -> list[tuple[int, int]]:
        polled = self._run(self.consumer.getmany(timeout_ms=100))
        if polled:
            with suppress(AioKafkaError):
                self._run(self.consumer.commit())
        return [(place.partition, record.offset) for place, records in polled.items() for record in records]

    def owned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def close(self) -> None:
        try:
            self._run(self.consumer.stop())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(PATIENCE_S)
            self.loop.close()


class Team:
    """Members that read in threads of their own, and what they have read."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        # As each member's own thread saw it: clients are not to be asked by two threads at once.
        self._owned: dict[int, set[int]] = {}
        self.read: set[tuple[int, int]] = set()
        self._stops: dict[int, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def add(self, member: Member) -> Member:
        self.members.append(member)
        stop = self._stops[id(member)] = threading.Event()
        thread = threading.Thread(target=self._work, args=(member, stop))
        self._threads.append(thread)
        thread.start()
        return member

    def _work(self, member: Member, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self.read.update(member.read())
                self._owned[id(member)] = member.owned()
            member.close()
        except BaseException as error:
            self.failures.append(error)

    def remove(self, member: Member) -> None:
        self._stops[id(member)].set()
        self.members.remove(member)

    def close(self) -> None:
        for stop in self._stops.values():
            stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def wait_until_shared(self, partitions: int) -> None:
        """Every partition has exactly one reader, and every member has something."""

        def shared() -> bool:
            owned = self.owned()
            return all(owned) and sorted(p for each in owned for p in each) == list(range(partitions))

        wait(shared, lambda: f"{self.owned()} {self.failures}")

    def owned(self) -> list[set[int]]:
        return [self._owned.get(id(member), set()) for member in self.members]

    def wait_until_read(self, expected: set[tuple[int, int]]) -> None:
        wait(lambda: expected <= self.read, lambda: f"{len(expected - self.read)} unread {self.failures}")


def wait(condition: Callable[[], bool], state: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, state()
        time.sleep(0.05)


@pytest.fixture
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    return start_node(settings={"kafka.group.initial.rebalance.delay.ms": "100"})


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team()
    try:
        yield team
    finally:
        team.close()
    assert not team.failures


def make_topic(node: NodeProcess, partitions: int, name: str = "t") -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)


def produce(node: NodeProcess, partitions: int, count: int, first: int = 0) -> set[tuple[int, int]]:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5})
    for partition in range(partitions):
        for number in range(count):
            producer.produce("t", b"%d" % number, partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    return {(partition, offset) for partition in range(partitions) for offset in range(first, first + count)}


KINDS = {"librdkafka": Confluent, "KIP-848": NewProtocol, "kafka-python": KafkaPython, "aiokafka": Aio}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_members_share_the_partitions_and_take_over_from_each_other(
    node: NodeProcess, team: Team, kind: Callable[..., Member]
) -> None:
    make_topic(node, 6)
    expected = produce(node, 6, 50)
    first = team.add(kind(node.bootstrap, "g", "t"))
    team.wait_until_shared(6)
    team.add(kind(node.bootstrap, "g", "t"))
    team.add(kind(node.bootstrap, "g", "t"))
    team.wait_until_shared(6)
    team.wait_until_read(expected)
    team.remove(first)
    team.wait_until_shared(6)
    team.wait_until_read(produce(node, 6, 50, first=50))


def test_clients_of_all_kinds_share_one_group(node: NodeProcess, team: Team) -> None:
    make_topic(node, 8)
    expected = produce(node, 8, 50)
    for kind in (Confluent, KafkaPython, Aio):
        team.add(kind(node.bootstrap, "g", "t"))
    team.wait_until_shared(8)
    # The first member of the new protocol turns the group into a KIP-848 group; the others stay in it.
    newcomer = team.add(NewProtocol(node.bootstrap, "g", "t"))
    team.wait_until_shared(8)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    assert str(admin.list_consumer_groups().result().valid[0].type) == "ConsumerGroupType.CONSUMER"
    team.wait_until_read(expected)
    expected = produce(node, 8, 50, first=50)
    team.remove(newcomer)
    team.wait_until_shared(8)
    team.wait_until_read(expected)
    assert str(admin.list_consumer_groups().result().valid[0].type) == "ConsumerGroupType.CLASSIC"


@pytest.mark.parametrize("kind", [Confluent, NewProtocol])
def test_a_static_member_comes_back_to_its_partitions_and_nobody_else_notices(
    node: NodeProcess, kind: Callable[..., Confluent]
) -> None:
    make_topic(node, 4)
    group = [kind(node.bootstrap, "g", "t", **{"group.instance.id": f"i{n}"}) for n in range(2)]
    wait(
        lambda: [member.read() for member in group] and [len(m.owned()) for m in group] == [2, 2],
        lambda: str([m.owned() for m in group]),
    )
    before = group[0].owned(), group[1].owned()
    group[1].close()
    successor = kind(node.bootstrap, "g", "t", **{"group.instance.id": "i1"})

    def back() -> bool:
        group[0].read()
        successor.read()
        assert group[0].owned() == before[0]
        return successor.owned() == before[1]

    wait(back, lambda: str(successor.owned()))
    group[0].close()
    successor.close()


class History:
    """What a member was given and gave back, told by its own callbacks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[Told] = []

    def assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._tell("assigned", places)

    def revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._tell("revoked", places)

    def _tell(self, event: str, places: list[TopicPartition]) -> None:
        fields = {"partitions": [place.partition for place in places]}
        self.told.append(Told(time.monotonic_ns(), event, fields))


# Half a minute on a busy machine with fifty of them, who show nothing that twenty do not.
@pytest.mark.parametrize(
    ("protocol", "count"),
    [("classic", 20), *(pytest.param(each, 50, marks=pytest.mark.long) for each in ("classic", "consumer"))],
)
def test_many_members_share_twice_as_many_partitions(node: NodeProcess, protocol: str, count: int) -> None:
    """And with the classic protocol no partition ever has two: neither while they come nor while every fifth leaves.

    With KIP-848 librdkafka may say that it has given a partition up a moment before its application hears of it; that
    the node gives none to two members, the scenarios and the simulator show.
    """
    make_topic(node, 2 * count)
    kind = NewProtocol if protocol == "consumer" else Confluent
    members = [kind(node.bootstrap, "g", "t") for _ in range(count)]
    histories = [History(f"member {number}") for number in range(count)]
    for member, history in zip(members, histories, strict=True):
        member.consumer.subscribe(
            ["t"], on_assign=history.assigned, on_revoke=history.revoked, on_lost=history.revoked
        )

    def shared(by: list[Confluent], shares: set[int]) -> bool:
        for member in by:
            member.consumer.poll(0)
        owned = sorted(p for member in by for p in member.owned())
        return owned == list(range(2 * count)) and {len(member.owned()) for member in by} == shares

    wait(lambda: shared(members, {2}), lambda: str([len(member.owned()) for member in members]))
    staying = [member for number, member in enumerate(members) if number % 5]
    for member in members[::5]:
        member.close()
    wait(lambda: shared(staying, {2, 3}), lambda: str([len(member.owned()) for member in staying]))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda member: member.close(), staying))
    if protocol == "classic":
        each_partition_had_one_owner_at_a_time(histories)


def test_the_node_matches_topics_for_members_that_subscribe_by_expression(node: NodeProcess) -> None:
    for name in ("orders-eu", "orders-us", "invoices"):
        make_topic(node, 1, name)
    member = NewProtocol(node.bootstrap, "g", "^orders-.*")

    def topics() -> set[str]:
        member.consumer.poll(0.1)
        return {place.topic for place in member.consumer.assignment()}

    wait(lambda: topics() == {"orders-eu", "orders-us"}, lambda: str(topics()))
    make_topic(node, 1, "orders-jp")
    wait(lambda: topics() == {"orders-eu", "orders-us", "orders-jp"}, lambda: str(topics()))
    member.close()


def test_members_of_the_new_protocol_choose_the_range_assignor(node: NodeProcess) -> None:
    """It gives equal numbers of two topics to one member, which `uniform` need not do."""
    for name in ("t", "u"):
        make_topic(node, 4, name)
    members = [NewProtocol(node.bootstrap, "g", "t", **{"group.remote.assignor": "range"}) for _ in range(2)]
    for member in members:
        member.consumer.subscribe(["t", "u"])

    def owned() -> list[dict[str, list[int]]]:
        found = []
        for member in members:
            member.consumer.poll(0.1)
            places = member.consumer.assignment()
            found.append({name: sorted(p.partition for p in places if p.topic == name) for name in "tu"})
        return sorted(found, key=str)

    halves = [{"t": half, "u": half} for half in ([0, 1], [2, 3])]
    wait(lambda: owned() == halves, lambda: str(owned()))
    for member in members:
        member.close()


def test_acknowledged_commits_survive_kill_9(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    make_topic(node, 1)
    groups = [f"g{n}" for n in range(8)]
    acknowledged = dict.fromkeys(groups, -1)
    for _ in range(5):
        stop = threading.Event()

        def commit(group: str, stop: threading.Event = stop) -> None:
            consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
            offset = acknowledged[group]
            while not stop.is_set():
                offset += 1
                try:
                    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
                except KafkaException:
                    break
                acknowledged[group] = offset
            consumer.close()

        before = sum(acknowledged.values())
        threads = [threading.Thread(target=commit, args=(group,)) for group in groups]
        for thread in threads:
            thread.start()
        wait(lambda before=before: sum(acknowledged.values()) > before + 200, lambda: str(acknowledged))  # type: ignore[misc]
        node.kill()
        stop.set()
        node.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "it would commit on into the next round"
        for group in groups:
            consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
            # Below -1 there is none: the node may have died before this group was first acknowledged.
            found = max(consumer.committed([TopicPartition("t", 0)], timeout=PATIENCE_S)[0].offset, -1)
            consumer.close()
            assert found >= acknowledged[group]
            acknowledged[group] = found


def test_members_go_on_after_the_node_was_killed(node: NodeProcess, team: Team) -> None:
    make_topic(node, 4)
    for kind in (Confluent, NewProtocol):
        team.add(
            kind(
                node.bootstrap,
                kind.__name__,
                "t",
                **{"session.timeout.ms": 10_000} if kind is Confluent else {},
            )
        )
    wait(lambda: all(len(owned) == 4 for owned in team.owned()), lambda: str(team.owned()))
    node.crash_and_restart()
    team.wait_until_read(produce(node, 4, 20))
