"""A topic with very many partitions is deleted: others have their turns, and its name is free at once."""

from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta

import pytest

from millstream.broker.partitions import retired
from millstream.broker.partitions.topic_changes import TopicChanges
from millstream.storage.segment import Segment
from millstream.testing.disk import SimulatedDisk
from support.held_disk import HeldDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, produce
from support.three_nodes import until

PARTITIONS = 40
SLICE = 10


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def node(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    monkeypatch.setattr(retired, "SLICE_ELEMENTS", SLICE)
    with node_on(disk) as node:
        yield node


@pytest.fixture
def client(node: InProcessNode) -> Iterator[RawClient]:
    with RawClient(node.listen) as client:
        yield client


def fill(client: RawClient) -> None:
    create_topic(client, "t", partitions=PARTITIONS, file_delete_delay_ms=0)
    for index in range(PARTITIONS):
        assert produce(client, "t", batch_of(b"old"), partition=index).error_code == 0


def delete(client: RawClient) -> None:
    client.call("delete_topics", 5, topic_names=["t"], timeout=timedelta(seconds=60))


def test_a_large_topic_is_let_go_of_in_turns(
    node: InProcessNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, closed_in = [0], []
    close = Segment.close

    def closed(segment: Segment) -> None:
        closed_in.append(turns[0])
        close(segment)

    def turn() -> None:
        turns[0] += 1
        if len(closed_in) < PARTITIONS:
            node.loop.call_soon(turn)

    fill(client)
    monkeypatch.setattr(Segment, "close", closed)
    node.loop.call_soon_threadsafe(turn)
    delete(client)
    until(lambda: len(closed_in) == PARTITIONS)
    assert [closed_in.count(each) for each in sorted(set(closed_in))] == [SLICE] * 4


def test_its_directories_go_with_one_rename(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client)
    renamed: list[str] = []
    rename = SimulatedDisk.rename

    def noted(disk: SimulatedDisk, source: str, target: str) -> None:
        renamed.append(source)
        rename(disk, source, target)

    monkeypatch.setattr(SimulatedDisk, "rename", noted)
    delete(client)
    until(lambda: not any(path.startswith(("/data/topics/t", "/data/deleted/t")) for path in disk.paths()))
    assert [path for path in renamed if path.startswith("/data/topics/")] == ["/data/topics/t"]


def test_after_a_kill_the_rest_is_removed_and_nothing_of_the_topic_made_anew(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    fill(client)
    held = HeldDisk(node)
    delete(client)
    create_topic(client, "t", partitions=PARTITIONS)
    partition = node.broker.partitions.find("t", 0)
    assert partition.log.log_end_offset == 0
    held.let_go()
    assert produce(client, "t", batch_of(b"new")).error_code == 0
    twin = disk.twin()
    twin.restart()
    with node_on(twin) as again:
        logs = [again.broker.partitions.find("t", index).log for index in range(PARTITIONS)]
        assert [log.log_end_offset for log in logs] == [1, *[0] * (PARTITIONS - 1)]
        until(lambda: not twin.list_dir("/data/deleted"))
        assert not again.broker.store.strays()


def test_a_directory_of_a_topic_that_only_others_keep_is_left_alone(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TopicChanges] = []
    monkeypatch.setattr(TopicChanges, "_change", lambda changes, *_: seen.append(changes))
    monkeypatch.setattr(TopicChanges, "_add", lambda changes, *_: seen.append(changes))
    create_topic(client, "elsewhere")
    until(lambda: seen)
    disk.make_dirs("/data/topics/elsewhere/partition-0")
    deleted = Future[None]()

    def delete_here() -> None:
        try:
            deleted.set_result(seen[0]._remove("elsewhere"))
        except BaseException as error:
            deleted.set_exception(error)

    node.loop.call_soon_threadsafe(delete_here)
    deleted.result(90)
    assert disk.exists("/data/topics/elsewhere/partition-0")
