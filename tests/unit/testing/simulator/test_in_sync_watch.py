"""In-sync sets that must be told from those that must not be."""

from uuid import UUID

from millstream.cluster.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
)
from millstream.testing.simulator.in_sync_watch import InSyncWatch

TOPIC = UUID(int=7)
BROKERS = [BrokerRegistered(number, number, UUID(int=number), ()) for number in (1, 2, 3)]


def state(isr: tuple[int, ...], leader: int, *, epoch: int = 4, **more: tuple[int, ...]) -> PartitionChanged:
    return PartitionChanged(TOPIC, 0, (1, 2, 3), isr, leader, epoch, 9, **more)


def seen(*entries: list[MetadataRecord] | MetadataRecord) -> list[str]:
    violations: list[str] = []
    watch = InSyncWatch(violations.append)
    watch.records_came(BROKERS)
    watch.records_came([PartitionCreated(TOPIC, 0, (1, 2, 3), (1, 2, 3), 1, 4, 8)])
    for entry in entries:
        watch.records_came(entry if isinstance(entry, list) else [entry])
    return violations


def test_sets_that_shrink_and_grow_as_the_leader_asks() -> None:
    assert not seen(state((1,), 1), state((1, 3), 1), state((1, 2, 3), 1))


def test_members_are_replicas_and_the_leader_is_one_of_them() -> None:
    assert "the in-sync set holds other nodes than replicas" in seen(state((1, 9), 1))[0]
    assert "the leader is not in sync" in seen(state((2, 3), 1))[0]
    assert "eligible set holds other nodes" in seen(state((1, 2), 1, elr=(2,)))[0]


def test_who_is_fenced_goes_in_the_same_change() -> None:
    fenced = BrokerChanged(3, 3, is_fenced=True)
    assert not seen([fenced, state((1, 2), 1)])
    assert "[3] are in sync though fenced" in seen(fenced)[0]
    assert (
        "[3] are in sync though fenced"
        in seen(BrokerChanged(3, 3, is_fenced=False, is_shutting_down=True))[0]
    )
    assert "[3] are in sync though fenced" in seen(BrokerUnregistered(3, 3))[0]
    assert "[3] are in sync though fenced" in seen(BrokerRegistered(3, 4, UUID(int=4), (), is_fenced=True))[0]


def test_nobody_comes_in_while_nobody_leads() -> None:
    gone = [BrokerChanged(number, number, is_fenced=True) for number in (1, 2, 3)]
    nobody = [*gone, state((), -1, epoch=5, elr=(1, 2))]
    back = [BrokerChanged(number, number, is_fenced=False) for number in (1, 2, 3)]
    assert not seen(nobody, [*back, state((1,), 1, epoch=6, elr=(2,))])
    assert (
        "[2] joined the in-sync set without a leader" in seen(nobody, [*back, state((1, 2), 1, epoch=6)])[0]
    )
    assert "joined the in-sync set without a leader" in seen(state((1,), 1), state((2, 3), 2, epoch=5))[0]


def test_an_end_of_a_reassignment_takes_the_last_one_in_and_may_choose_another_leader() -> None:
    moving = state((1, 2), 1, removing=(1,))
    assert not seen(moving, state((2, 3), 2, epoch=5))
