"""The metadata on three nodes: real logs and threads, messages and forwarded commands handed over in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from millstream.cluster.metadata.brokers import BrokerHeartbeat, RegisterBroker, UnregisterBroker
from millstream.cluster.metadata.command_codec import decode_command, encode_refusal, encode_result
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.directory import create_replica, open_replica
from millstream.cluster.metadata.machine import Records
from millstream.cluster.metadata.producer_ids import AllocateProducerIds
from millstream.cluster.metadata.quorum import AddVoter, RemoveVoter
from millstream.cluster.metadata.records import ClusterCreated, Endpoint, TopicCreated, encode_records
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.topics import CreateTopics, NewTopic
from millstream.cluster.raft.entries import first_snapshot
from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.cluster.raft.messages import InstallSnapshot, Message
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import SystemDisk

KEYS = tuple(MemberKey(number, UUID(int=number)) for number in (1, 2, 3))
FIRST = first_snapshot(Membership(KEYS), encode_records([ClusterCreated("c" * 22)]))
ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092),)
SHORT_SECONDS = 0.6


class Board:
    """The network: what is cut off neither sends nor receives."""

    def __init__(self, path: Path, session_seconds: float) -> None:
        self.path = path
        self.session_seconds = session_seconds
        self.services: dict[int, MetadataService] = {}
        self.cut: set[int] = set()
        self.snapshots = 0

    def start(self, number: int) -> MetadataService:
        disk, directory = SystemDisk(), str(self.path / str(number))
        stored = open_replica(disk, directory, number)
        if stored is None:
            stored = create_replica(disk, directory, KEYS[number - 1], FIRST)
        service = self.services[number] = MetadataService(
            stored,
            transport=_Wire(self, number),
            forward=lambda to, data: self.forward(number, to, data),
            session_seconds=self.session_seconds,
            snapshot_after=2000,
            defaults=Defaults(broker_id=number, partitions=number),
        )
        service.quorum.start()
        return service

    async def stop(self, number: int) -> None:
        await self.services.pop(number).close()

    def deliver(self, sender: int, message: Message) -> None:
        to = message.to.node_id
        if to in self.services and not self.cut & {sender, to}:
            self.snapshots += isinstance(message, InstallSnapshot)
            self.services[to].quorum.receive(message)

    async def forward(self, sender: int, to: int, data: bytes) -> bytes:
        if to not in self.services or self.cut & {sender, to}:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "cut off")
        try:
            return encode_result(await self.services[to].decide(decode_command(data)))
        except KafkaError as error:
            return encode_refusal(error)

    async def leader(self, *without: int) -> int:
        while True:
            for number, service in self.services.items():
                if service.is_controller and number not in without:
                    return number
            await asyncio.sleep(0.01)

    async def agree(self, is_so: Callable[[MetadataService], bool]) -> None:
        while not all(is_so(service) for service in self.services.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class _Wire:
    def __init__(self, board: Board, number: int) -> None:
        self._board = board
        self._number = number

    def send(self, message: Message) -> None:
        asyncio.get_running_loop().call_soon(self._board.deliver, self._number, message)


@asynccontextmanager
async def three(path: Path, session_seconds: float = 60.0) -> AsyncIterator[Board]:
    board = Board(path, session_seconds)
    for number in (1, 2, 3):
        board.start(number)
    try:
        async with asyncio.timeout(90):
            yield board
    finally:
        for number in list(board.services):
            await board.stop(number)


def run(story: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(story())


def others(board: Board, *without: int) -> list[int]:
    return [number for number in board.services if number not in without]


async def create(board: Board, number: int, name: str) -> None:
    board_now = board.services[number]
    (created,) = await board_now.submit(CreateTopics((NewTopic(name),)))
    assert created.error is None, created.error
    assert name in board_now.image.topics, "whoever asked finds it"


async def register_all(board: Board, *, with_directories: bool = False) -> None:
    for number, service in board.services.items():
        directory = KEYS[number - 1].directory_id if with_directories else None
        register = RegisterBroker(number, ENDPOINTS, is_fenced=True, directory=directory)
        service.broker_epoch = await service.submit(register)
        await service.submit(BrokerHeartbeat(number, service.broker_epoch))


def test_any_node_takes_commands_and_all_come_to_the_same_image(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            await board.leader()
            await register_all(board)
            for number in board.services:
                await create(board, number, f"topic-{number}")
            await board.agree(lambda each: len(each.image.topics) == 3)
            images = [service.image for service in board.services.values()]
            assert images[0].topics == images[1].topics == images[2].topics
            blocks = [await board.services[number].submit(AllocateProducerIds(10)) for number in (1, 2, 3)]
            assert sorted(block.start for block in blocks) == [0, 10, 20]
            assert len({service.controller_id for service in board.services.values()}) == 1

    run(story)


def test_new_topics_get_the_defaults_of_the_controller_whichever_node_is_asked(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            controller = await board.leader()
            await register_all(board)
            for number, service in board.services.items():
                own = Defaults(broker_id=number, partitions=40 + number)
                await service.submit(CreateTopics((NewTopic(f"topic-{number}"),), defaults=own))
            await board.agree(lambda each: len(each.image.topics) == 3)
            topics = board.services[controller].image.topics.values()
            assert {len(topic.partitions) for topic in topics} == {controller}

    run(story)


def test_a_leader_that_is_cut_off_decides_nothing_and_its_successor_does(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            old = await board.leader()
            await register_all(board)
            board.cut.add(old)
            lost = asyncio.create_task(board.services[old].decide(CreateTopics((NewTopic("lost"),))))
            new = await board.leader(old)
            await create(board, others(board, old, new)[0], "kept")
            assert not board.services[old].image.topics
            board.cut.clear()
            with pytest.raises(KafkaError) as caught:
                await lost
            assert caught.value.code is ErrorCode.NOT_CONTROLLER
            await board.agree(lambda each: set(each.image.topics) == {"kept"})
            # What it had foreseen is forgotten: it decides on what is there.
            assert (await board.services[old].submit(CreateTopics((NewTopic("lost"),))))[0].error is None

    run(story)


def test_a_command_waits_for_the_next_controller(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            old = await board.leader()
            await register_all(board)
            await board.stop(old)
            await create(board, others(board)[0], "after")
            await board.agree(lambda each: "after" in each.image.topics)

    run(story)


def test_a_broker_whose_process_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            old = await board.leader()
            await register_all(board, with_directories=True)
            ended = others(board, old)[0]
            board.services[old].peer_gone(KEYS[ended - 1])
            await board.agree(lambda each: not each.image.is_live(ended))
            await board.services[ended].submit(BrokerHeartbeat(ended, board.services[ended].broker_epoch))
            await board.agree(lambda each: each.image.is_live(ended))
            # A controller that ends is noticed by the others, one of whom leads then.
            await board.stop(old)
            for number in others(board):
                board.services[number].peer_gone(KEYS[old - 1])
            await board.agree(lambda each: not each.image.is_live(old))

    run(story)


def test_another_directory_or_epoch_of_the_broker_is_not_the_one_that_ended(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            controller = board.services[await board.leader()]
            await register_all(board, with_directories=True)
            node = others(board, controller.controller_id)[0]
            controller.peer_gone(MemberKey(node, UUID(int=99)))
            controller.peer_gone(KEYS[node - 1])
            board.services[node].broker_epoch = await board.services[node].submit(
                RegisterBroker(node, ENDPOINTS, directory=KEYS[node - 1].directory_id)
            )
            await create(board, node, "after")
            assert controller.image.is_live(node)

    run(story)


def test_a_silent_broker_is_fenced_and_one_that_speaks_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path, SHORT_SECONDS) as board:
            await board.leader()
            await register_all(board)
            silent = 3

            async def keep_speaking() -> None:
                while True:
                    for number in (1, 2):
                        service = board.services[number]
                        await service.submit(BrokerHeartbeat(number, service.broker_epoch))
                    await asyncio.sleep(SHORT_SECONDS / 10)

            speaking = asyncio.create_task(keep_speaking())
            await board.agree(lambda each: not each.image.is_live(silent))
            assert [each.broker_id for each in board.services[1].image.live_brokers] == [1, 2]
            await board.services[silent].submit(BrokerHeartbeat(silent, board.services[silent].broker_epoch))
            await board.agree(lambda each: each.image.is_live(silent))
            speaking.cancel()

    run(story)


def test_a_node_that_missed_much_gets_a_snapshot_and_its_followers_hear_all(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            controller = await board.leader()
            await register_all(board)
            behind = others(board, controller)[0]
            heard: list[Records] = []
            board.services[behind].subscribe(lambda _old, _new, records: heard.append(records))
            board.cut.add(behind)
            for turn in range(12):
                await create(board, controller, f"t-{turn}")
                service = board.services[controller]
                await asyncio.gather(*(service.submit(AllocateProducerIds(1)) for _ in range(120)))
            before = board.snapshots
            board.cut.clear()
            await board.agree(lambda each: len(each.image.topics) == 12)
            assert board.snapshots > before
            created = [
                record.name for records in heard for record in records if isinstance(record, TopicCreated)
            ]
            assert sorted(created) == sorted(f"t-{turn}" for turn in range(12))

    run(story)


def test_everything_is_there_after_all_were_stopped(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            await board.leader()
            await register_all(board)
            await create(board, 2, "kept")
            for number in (1, 2, 3):
                await board.stop(number)
            for number in (1, 2, 3):
                board.start(number)
            await board.agree(lambda each: "kept" in each.image.topics and each.image.cluster_id == "c" * 22)

    run(story)


@pytest.mark.parametrize("change", [RemoveVoter(9), AddVoter(2)])
def test_a_controller_that_was_deposed_does_not_say_who_has_a_vote(
    tmp_path: Path, change: AddVoter | RemoveVoter
) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            old = await board.leader()
            board.cut.add(old)
            asked = asyncio.ensure_future(board.services[old].decide(change))
            await board.leader(old)
            board.cut.clear()
            with pytest.raises(KafkaError) as caught:
                await asked
            assert caught.value.code is ErrorCode.NOT_CONTROLLER

    run(story)


@pytest.mark.parametrize("change", [RemoveVoter, UnregisterBroker])
def test_no_node_goes_without_which_the_voters_that_are_up_are_no_majority(
    tmp_path: Path, change: type[RemoveVoter] | type[UnregisterBroker]
) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            await board.leader()
            await register_all(board)
            stops = BrokerHeartbeat(3, board.services[3].broker_epoch, wants_to_stop=True, sequence=1)
            await board.services[1].submit(stops)
            with pytest.raises(KafkaError, match=r"no majority of the voters is left.*: 3;"):
                await board.services[1].submit(change(2))
            await board.services[1].submit(change(3))

    run(story)


def test_a_controller_that_is_taken_out_says_that_it_was_done(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            old = await board.leader()
            await register_all(board)
            assert await board.services[old].submit(RemoveVoter(old))
            await board.leader(old)

    run(story)


def test_a_controller_that_was_deposed_takes_no_signs_of_life(tmp_path: Path) -> None:
    """A broker would rely on it for as long as a lease lasts, while the next controller fences it."""

    async def story() -> None:
        async with three(tmp_path) as board:
            old = await board.leader()
            await register_all(board)
            epoch = board.services[old].image.brokers[old].epoch
            board.cut.add(old)
            beat = asyncio.ensure_future(board.services[old].decide(BrokerHeartbeat(old, epoch, sequence=1)))
            await board.leader(old)
            assert not beat.done()
            board.cut.clear()
            with pytest.raises(KafkaError) as refused:
                await beat
            assert refused.value.code is ErrorCode.NOT_CONTROLLER

    run(story)


def test_a_sign_of_life_tells_what_must_be_known_and_an_older_one_undoes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as board:
            await register_all(board)
            leader = board.services[await board.leader()]
            epochs = {number: broker.epoch for number, broker in leader.image.brokers.items()}
            for number, epoch in epochs.items():
                standing = await leader.decide(BrokerHeartbeat(number, epoch, sequence=2))
                assert standing.index == leader.quorum.applied_index
            with pytest.raises(KafkaError, match="newer heartbeat"):
                await leader.decide(BrokerHeartbeat(1, epochs[1], can_write=False, sequence=1))
            assert leader.image.is_live(1)
            await leader.decide(BrokerHeartbeat(1, epochs[1], can_write=False, sequence=3))
            assert not leader.image.is_live(1)

    run(story)
