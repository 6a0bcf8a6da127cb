"""Copies that are being made keep to the rates of operators; members of the in-sync set are never held back."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.broker.replicas.throttle import ReplicaThrottle, Side
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import ConfigChanged, ConfigResource, PartitionCreated, TopicCreated
from millstream.testing.clock import ManualClock
from support.logs import TOPIC_ID, new_log

ME, COPY, MEMBER = 1, 2, 3


def throttle_at(rate: str | None, replicas: str = "0:1") -> tuple[ReplicaThrottle, Partition, ManualClock]:
    topic_id = UUID(bytes=TOPIC_ID)
    image = MetadataImage().apply(
        [
            TopicCreated("t", topic_id),
            PartitionCreated(topic_id, 0, (ME, COPY, MEMBER), (ME, MEMBER), ME),
            ConfigChanged(ConfigResource.TOPIC, "t", "leader.replication.throttled.replicas", replicas),
            ConfigChanged(ConfigResource.BROKER, str(ME), "leader.replication.throttled.rate", rate),
        ]
    )
    clock = ManualClock(0)
    metadata: Any = SimpleNamespace(image=image)
    partition = Partition("t", 0, TOPIC_ID, new_log(), 0, SimpleNamespace())
    return ReplicaThrottle(ME, metadata, clock, Side.LEADER), partition, clock


def test_what_went_by_has_to_be_waited_for() -> None:
    throttle, partition, clock = throttle_at("1000")
    assert throttle.wait_seconds(partition, COPY) == 0
    throttle.spend(partition, COPY, 500)
    assert throttle.wait_seconds(partition, COPY) == 0.5
    throttle.spend(partition, COPY, 1500)
    assert throttle.wait_seconds(partition, COPY) == 2.0
    clock.advance(2000)
    assert throttle.wait_seconds(partition, COPY) == 0


def test_a_member_of_the_in_sync_set_is_not_held_back() -> None:
    throttle, partition, _ = throttle_at("1000")
    throttle.spend(partition, MEMBER, 10_000)
    assert throttle.wait_seconds(partition, COPY) == 0
    throttle.spend(partition, COPY, 10_000)
    assert throttle.wait_seconds(partition, MEMBER) == 0


def test_without_a_rate_or_without_a_name_on_the_list_nothing_waits() -> None:
    for rate, replicas in ((None, "*"), ("10", "1:1"), ("10", "")):
        throttle, partition, _ = throttle_at(rate, replicas)
        throttle.spend(partition, COPY, 10_000)
        assert throttle.wait_seconds(partition, COPY) == 0
