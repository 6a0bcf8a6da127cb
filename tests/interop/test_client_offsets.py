"""A group's offsets seen and changed from outside."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from millstream.client import (
    ConfigurationError,
    Consumer,
    ConsumerConfig,
    GroupChanged,
    OffsetManager,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    ProducerRecord,
)
from millstream.testing import EmbeddedBroker
from support.reading import read

# Messages are dated back here; retention must not take them while other tests go on.
pytestmark = pytest.mark.millstream(scope="session", settings={"storage.retention_check_interval": "30d"})

START_MS = 1_700_000_000_000


@pytest.fixture
def topic(millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> str:
    """One partition, ten messages a second apart."""
    name = new_topic()
    with Producer(ProducerConfig(bootstrap_servers=millstream_broker.bootstrap_servers)) as producer:
        producer.send_batch(ProducerRecord(name, str(n), timestamp_ms=START_MS + n * 1000) for n in range(10))
    return name


@pytest.fixture
def config(millstream_broker: EmbeddedBroker, topic: str) -> ConsumerConfig:
    return ConsumerConfig(
        bootstrap_servers=millstream_broker.bootstrap_servers,
        group_id=f"group-of-{topic}",
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
    )


@pytest.fixture
def manager(config: ConsumerConfig) -> Iterator[OffsetManager]:
    with OffsetManager(config) as made:
        yield made


def test_group_without_commits_has_no_offset(manager: OffsetManager, topic: str) -> None:
    assert manager.fetch(topic, 0) is None


def test_committed_offset_is_fetched_and_where_members_start(
    manager: OffsetManager, topic: str, config: ConsumerConfig
) -> None:
    manager.commit(topic, 0, 6)

    assert manager.fetch(topic, 0) == 6
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        assert read(consumer, 1)[0].offset == 6


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        ("earliest", 0),
        (OffsetResetPolicy.EARLIEST, 0),
        ("latest", 10),
        (OffsetResetPolicy.LATEST, 10),
        (4, 4),
        (99, 10),
        (-5, 0),
        (datetime.fromtimestamp(START_MS / 1000 + 2.5, UTC), 3),
        (datetime.fromtimestamp(START_MS / 1000 + 100, UTC), 10),
    ],
)
def test_reset_to_every_kind_of_position(
    manager: OffsetManager, topic: str, position: OffsetResetPolicy | str | int | datetime, offset: int
) -> None:
    assert manager.reset(topic, 0, position) == offset
    assert manager.fetch(topic, 0) == offset


@pytest.mark.parametrize(
    ("position", "message"),
    [("yesterday", "use 'earliest', 'latest'"), (datetime(2024, 1, 1), "needs a time zone")],  # noqa: DTZ001
)
def test_position_that_cannot_be_used_is_refused(
    manager: OffsetManager, topic: str, position: str | datetime, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        manager.reset(topic, 0, position)


def test_offsets_of_a_group_with_members_are_left_to_them(
    manager: OffsetManager, topic: str, config: ConsumerConfig
) -> None:
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        read(consumer, 1)
        with pytest.raises(GroupChanged, match="the group has members; stop them"):
            manager.commit(topic, 0, 3)
