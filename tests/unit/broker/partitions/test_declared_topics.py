"""Topics of the settings file: created once, never a reason to end, and compared with what is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

from millstream.broker.partitions.declared_topics import differences
from millstream.cluster.metadata.image import PartitionImage, TopicImage
from millstream.config.settings import Settings, TopicSettings
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode
from support.raw_client import RawClient


@contextmanager
def node_with(
    disk: SimulatedDisk, *topics: TopicSettings, max_partitions: int = 100
) -> Iterator[InProcessNode]:
    settings = Settings()
    settings = replace(
        settings,
        broker=replace(settings.broker, host="127.0.0.1", port=0, data_dir="/data"),
        storage=replace(settings.storage, cleaner_enabled=False),
        cluster=replace(settings.cluster, max_partitions=max_partitions),
        topics=topics,
    )
    node = InProcessNode(disk, settings)
    node.start()
    try:
        yield node
    finally:
        node.stop()
        disk.restart(power_loss=False)


def topics_of(node: InProcessNode) -> dict[str, int]:
    with RawClient(node.listen) as client:
        reply = client.call("metadata", 12, topics=None)
    return {topic.name: len(topic.partitions) for topic in reply.topics}


def test_a_node_that_is_alone_has_them_when_it_is_ready() -> None:
    disk = SimulatedDisk(1)
    with node_with(disk, TopicSettings("one", 2), TopicSettings("two")) as node:
        assert topics_of(node) == {"one": 2, "two": 1}


def test_what_cannot_be_created_ends_no_node_and_keeps_no_other_back() -> None:
    disk = SimulatedDisk(1)
    with node_with(disk, TopicSettings("large", 5), TopicSettings("small", 1), max_partitions=3) as node:
        assert topics_of(node) == {"small": 1}
        assert not node.broker.failure.done()


def test_a_deleted_one_comes_back_at_the_next_start_only() -> None:
    disk = SimulatedDisk(1)
    with node_with(disk, TopicSettings("one")) as node:
        with RawClient(node.listen) as client:
            client.call("delete_topics", 6, topics=[{"name": "one", "topic_id": None}])
        assert topics_of(node) == {}
    with node_with(disk, TopicSettings("one")) as node:
        assert topics_of(node) == {"one": 1}


def test_a_topic_that_is_there_is_left_as_it_is() -> None:
    disk = SimulatedDisk(1)
    with node_with(disk, TopicSettings("one", 2)) as node:
        assert topics_of(node) == {"one": 2}
    with node_with(disk, TopicSettings("one", 4)) as node:
        assert topics_of(node) == {"one": 2}


def topic(replicas: tuple[int, ...] = (1, 2), partitions: int = 2, **configs: str) -> TopicImage:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    images = tuple(PartitionImage(index, replicas, replicas, 1, 0, 0) for index in range(partitions))
    return TopicImage("t", UUID(int=1), images, named)


def test_every_difference_is_named_with_what_changes_it() -> None:
    same = TopicSettings("t", 2, 2, {"retention.ms": "5"})
    assert list(differences(same, 2, topic(retention_ms="5"))) == []
    (more,) = differences(replace(same, partitions=3), 2, topic(retention_ms="5"))
    assert "millstream topic alter t --partitions 3" in more
    (fewer,) = differences(replace(same, partitions=1), 2, topic(retention_ms="5"))
    assert "never gets fewer" in fewer
    (factor,) = differences(same, 3, topic(retention_ms="5"))
    assert "it has 2 replicas and 3 are declared" in factor
    (setting,) = differences(same, 2, topic())
    assert "retention.ms is not set and 5 is declared" in setting
