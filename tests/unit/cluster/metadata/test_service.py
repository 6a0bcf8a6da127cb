"""The service: first start, restarts, shared fsyncs, subscribers, failures, and crashes at any byte."""

import asyncio
import errno
import functools
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cluster.metadata.brokers import AdvanceLeaderEpochs
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.configs import AlterConfigs, ConfigAlteration, ConfigChange
from millstream.cluster.metadata.directory import DIRECTORY, WrongDataDirectory, create_replica
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.machine import UnknownRecords
from millstream.cluster.metadata.partitions import CreatePartitions, PartitionIncrease
from millstream.cluster.metadata.producer_ids import BLOCK_SIZE, AllocateProducerIds
from millstream.cluster.metadata.records import Endpoint, MetadataRecord
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.topics import CreateTopics, DeleteTopics, NewTopic, TopicRef
from millstream.cluster.raft.entries import first_snapshot
from millstream.cluster.raft.errors import TooMuchUncommitted
from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Buffer, SystemDisk, SystemFile
from millstream.testing.disk import Fault, Operation, SimulatedDisk

ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092),)


def in_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def start(data_dir: Path, *, node_id: int = 1, snapshot_after: int = 1 << 20) -> MetadataService:
    return await MetadataService.open(
        SystemDisk(),
        str(data_dir),
        node_id=node_id,
        endpoints=ENDPOINTS,
        rack="r1",
        snapshot_after=snapshot_after,
    )


@in_loop
async def test_the_first_start_creates_a_cluster_and_a_restart_keeps_it(tmp_path: Path) -> None:
    service = await start(tmp_path)
    cluster_id, incarnation = service.image.cluster_id, service.image.brokers[1].incarnation
    assert len(cluster_id) == 22
    assert not cluster_id.startswith("-")
    assert service.image.brokers[1].endpoints == ENDPOINTS
    assert service.broker_epoch == 0
    await service.close()

    service = await start(tmp_path)
    assert service.image.cluster_id == cluster_id
    assert service.broker_epoch == 1
    assert service.image.brokers[1].incarnation != incarnation
    await service.close()


@in_loop
async def test_another_brokers_directory_is_refused(tmp_path: Path) -> None:
    await (await start(tmp_path)).close()
    with pytest.raises(WrongDataDirectory, match="broker 1"):
        await start(tmp_path, node_id=2)


@in_loop
async def test_topics_without_metadata_are_refused(tmp_path: Path) -> None:
    (tmp_path / "topics" / "orders").mkdir(parents=True)
    with pytest.raises(WrongDataDirectory, match="holds topics"):
        await start(tmp_path)


@in_loop
async def test_concurrent_commands_see_each_others_changes(tmp_path: Path) -> None:
    service = await start(tmp_path)
    results = await asyncio.gather(*(service.submit(CreateTopics((NewTopic("same"),))) for _ in range(100)))
    assert sum(result[0].error is None for result in results) == 1
    await service.close()


@in_loop
async def test_a_change_that_is_not_taken_leaves_those_under_way_in_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await start(tmp_path)
    under_way = asyncio.create_task(service.submit(CreateTopics((NewTopic("a"),))))
    await asyncio.sleep(0)
    with monkeypatch.context() as patch:

        def too_much(*_: object) -> None:
            raise TooMuchUncommitted("try again later")

        patch.setattr(service.quorum, "begin", too_much)
        with pytest.raises(KafkaError) as caught:
            await service.submit(CreateTopics((NewTopic("b"),)))
        assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    (again,) = await service.submit(CreateTopics((NewTopic("a"),)))
    assert again.error is not None
    assert again.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert (await under_way)[0].error is None
    assert set(service.image.topics) == {"a"}
    await service.close()


@in_loop
async def test_subscribers_hear_of_a_change_before_its_submitter(tmp_path: Path) -> None:
    service = await start(tmp_path)
    heard: list[tuple[int, int, int]] = []

    def broken(old: MetadataImage, new: MetadataImage, records: tuple[MetadataRecord, ...]) -> None:
        raise RuntimeError("a subscriber's own trouble")

    def subscriber(old: MetadataImage, new: MetadataImage, records: tuple[MetadataRecord, ...]) -> None:
        assert service.image is new
        heard.append((len(old.topics), len(new.topics), len(records)))

    service.subscribe(broken)
    service.subscribe(subscriber)
    await service.submit(CreateTopics((NewTopic("a", 3),)))
    assert heard == [(0, 1, 4)]
    await service.submit(CreateTopics((NewTopic("a"),)))
    assert len(heard) == 1
    await service.close()


@in_loop
async def test_after_closing_commands_are_refused(tmp_path: Path) -> None:
    service = await start(tmp_path)
    await service.close()
    with pytest.raises(KafkaError, match="shutting down"):
        await service.submit(CreateTopics((NewTopic("a"),)))


@in_loop
async def test_an_unclean_return_gives_every_led_partition_a_new_epoch(tmp_path: Path) -> None:
    service = await start(tmp_path)
    await service.submit(CreateTopics((NewTopic("a", 3),)))
    assert await service.submit(AdvanceLeaderEpochs(1)) == 3
    assert await service.submit(AdvanceLeaderEpochs(2)) == 0
    assert [p.leader_epoch for p in service.image.topics["a"].partitions] == [1, 1, 1]
    await service.close()


class FullFile(SystemFile):
    __slots__ = ()

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


class FillingDisk(SystemDisk):
    def __init__(self) -> None:
        self.files: list[SystemFile] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SystemFile:
        file = super().open(path, create=create, read_only=read_only)
        self.files.append(file)
        return file


@in_loop
async def test_a_full_disk_refuses_changes_answers_reads_and_recovers(tmp_path: Path) -> None:
    disk = FillingDisk()
    service = await MetadataService.open(disk, str(tmp_path), node_id=1, endpoints=ENDPOINTS)
    file = disk.files[-1]
    file.__class__ = FullFile
    before = service.image
    with pytest.raises(KafkaError) as caught:
        await service.submit(CreateTopics((NewTopic("a"),)))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert service.image is before
    assert (await service.submit(CreateTopics((NewTopic("a"),), validate_only=True)))[0].error is None
    file.__class__ = SystemFile
    assert (await service.submit(CreateTopics((NewTopic("a"),))))[0].error is None
    await service.close()


@in_loop
async def test_after_a_failed_fsync_changes_are_refused_until_a_restart(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/data")
    service = await MetadataService.open(disk, "/data", node_id=1, endpoints=ENDPOINTS)
    disk.faults.add(Fault(Operation.SYNC, errno.EIO))
    for _ in range(2):
        with pytest.raises(KafkaError, match="restart the node") as caught:
            await service.submit(CreateTopics((NewTopic("a"),)))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not service.image.topics
    await service.close()


@in_loop
async def test_records_of_a_newer_version_stop_the_start(tmp_path: Path) -> None:
    key = MemberKey(1, UUID(int=1))
    first = first_snapshot(Membership((key,)), b"\x91\x92\x63\x01")
    create_replica(SystemDisk(), str(tmp_path), key, first).wal.close()
    with pytest.raises(UnknownRecords, match="newer version"):
        await start(tmp_path)


@in_loop
async def test_a_producer_id_is_never_handed_out_twice(tmp_path: Path) -> None:
    taken: list[int] = []
    for _ in range(3):
        # Never closed: as after a kill, the rest of the block is lost.
        service = await start(tmp_path)
        taken += await asyncio.gather(*(service.producer_ids.take() for _ in range(BLOCK_SIZE + 1)))
    assert len(set(taken)) == len(taken)
    assert taken[:3] == [0, 1, 2]
    await service.close()


NAMES = st.sampled_from(["a", "b", "c.d", "c_d"])
COMMANDS: st.SearchStrategy[Command[object]] = st.one_of(
    st.builds(lambda name, n: CreateTopics((NewTopic(name, n),)), NAMES, st.integers(0, 3)),
    st.builds(lambda name: DeleteTopics((TopicRef(name),)), NAMES),
    st.builds(lambda name, n: CreatePartitions((PartitionIncrease(name, n),)), NAMES, st.integers(1, 5)),
    st.builds(
        lambda name, value: AlterConfigs(
            (ConfigAlteration(2, name, (ConfigChange("retention.ms", value),)),)
        ),
        NAMES,
        st.integers(-1, 5).map(str),
    ),
    st.builds(AllocateProducerIds),
    st.builds(AdvanceLeaderEpochs, st.just(1)),
)


@settings(deadline=None, max_examples=60)
@given(
    kept=st.floats(0, 1),
    commands=st.lists(COMMANDS, max_size=12),
    snapshot_after=st.sampled_from([1, 150, 1 << 20]),
)
def test_a_crash_at_any_byte_gives_a_state_with_everything_acknowledged(
    kept: float, commands: list[Command[object]], snapshot_after: int
) -> None:
    data_dir = Path(tempfile.mkdtemp())

    async def before_the_crash() -> tuple[list[MetadataImage], int]:
        """Every state in order, and the size of the log up to which the last of them is acknowledged."""
        service = await start(data_dir, snapshot_after=snapshot_after)
        states = [service.image]
        service.subscribe(lambda _old, new, _records: states.append(new))
        acknowledged = _log_size(data_dir)
        for command in commands:
            acknowledged = _log_size(data_dir)
            await service.submit(command)
        await service.close()
        return states, acknowledged

    async def after_the_crash() -> MetadataImage:
        service = await start(data_dir, snapshot_after=snapshot_after)
        image = service.image
        await service.close()
        return image

    try:
        states, acknowledged = asyncio.run(before_the_crash())
        active = _active_log(data_dir)
        size = active.stat().st_size
        # Everything but the last command was acknowledged; a snapshot may have begun the log again since.
        least = min(acknowledged, size)
        cut = least + round(kept * (size - least))
        with active.open("r+b") as file:
            file.truncate(cut)
        reloaded = asyncio.run(after_the_crash())
        known = [(state.topics, state.next_producer_id, state.cluster_id) for state in states[-2:]]
        assert (reloaded.topics, reloaded.next_producer_id, reloaded.cluster_id) in known
        if cut == size:
            assert (reloaded.topics, reloaded.next_producer_id) == (
                states[-1].topics,
                states[-1].next_producer_id,
            )
    finally:
        shutil.rmtree(data_dir)


def _log_size(data_dir: Path) -> int:
    while True:
        # A snapshot may take its place at any moment.
        with suppress(FileNotFoundError):
            return _active_log(data_dir).stat().st_size


def _active_log(data_dir: Path) -> Path:
    return max((data_dir / DIRECTORY).glob("*.wal"))
