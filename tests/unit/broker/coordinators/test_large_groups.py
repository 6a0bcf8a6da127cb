"""A node assigns a large group in a thread, and its members are answered when that is done."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.broker.coordinators import groups
from millstream.coordinator.groups import targets
from millstream.coordinator.groups.target_job import NewTargets, TargetJob, compute
from millstream.protocol.errors import ErrorCode
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, create_topic, milliseconds
from support.waiting import wait_for


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    monkeypatch.setattr(targets, "ASSIGNED_AT_ONCE", -1)
    with node_on(SimulatedDisk()) as node:
        yield node


@pytest.fixture
def client(node: InProcessNode) -> Iterator[RawClient]:
    with RawClient(node.listen) as client:
        create_topic(client, "t", partitions=6)
        client.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
        wait_for(
            lambda: beat(client, "other", "m", 0).error_code, lambda code: code == 0, "groups are coordinated"
        )
        yield client


def beat(client: RawClient, group: str, member: str, epoch: int) -> Any:
    return client.call(
        "consumer_group_heartbeat",
        0,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=["t"],
        rebalance_timeout=milliseconds(60_000),
        topic_partitions=[],
    )


def test_who_joins_is_answered_with_what_a_thread_has_computed(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()

    def watched(job: TargetJob) -> NewTargets:
        threads.add(threading.current_thread().name)
        return compute(job)

    monkeypatch.setattr(groups, "compute", watched)
    answer = beat(client, "g", "m", 0)
    assert answer.error_code == ErrorCode.NONE
    [topic] = answer.assignment.topic_partitions
    assert sorted(topic.partitions) == list(range(6))
    assert threads
    assert "node" not in threads


def test_members_are_told_when_it_fails_and_may_join_again(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_job: TargetJob) -> NewTargets:
        raise ValueError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(groups, "compute", failing)
        assert beat(client, "g", "m", 0).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert beat(client, "g", "m", 0).error_code == ErrorCode.NONE
