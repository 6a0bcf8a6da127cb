"""Elections that must be told from those that must not be."""

from uuid import UUID

from millstream.cluster.metadata.records import (
    ConfigChanged,
    ConfigResource,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    encode_records,
)
from millstream.cluster.raft.entries import Entry, EntryKind
from millstream.testing.simulator.election_watch import ElectionWatch

TOPIC = UUID(int=7)


def created(isr: tuple[int, ...] = (1, 2, 3), **more: int | tuple[int, ...]) -> PartitionCreated:
    return PartitionCreated(TOPIC, 0, (1, 2, 3), isr, 1, 4, 9, **more)  # type: ignore[arg-type]


def changed(isr: tuple[int, ...], leader: int, leader_epoch: int = 5) -> PartitionChanged:
    return PartitionChanged(TOPIC, 0, (1, 2, 3), isr, leader, leader_epoch, 10)


def seen(*records: MetadataRecord) -> list[str]:
    violations: list[str] = []
    watch = ElectionWatch(violations.append)
    for index, record in enumerate(records, 1):
        watch.entry_came(Entry(index, 1, EntryKind.DATA, encode_records([record])))
    return violations


def test_who_was_in_sync_or_eligible_or_led_last_may_lead() -> None:
    assert not seen(created(), changed((2, 3), 2))
    assert not seen(created(isr=(1,), elr=(2,)), changed((2,), 2))
    assert not seen(created(isr=(), last_known_leader=3), changed((3,), 3))


def test_nobody_else_may() -> None:
    assert "unclean election" in seen(created(isr=(1,)), changed((2,), 2))[0]


def test_who_comes_in_with_the_end_of_a_reassignment_may_lead() -> None:
    assert not seen(created(isr=(1,), removing=(1,)), changed((2, 3), 2))


def test_every_leader_has_an_epoch_of_its_own() -> None:
    assert "in the same epoch" in seen(created(), changed((2, 3), 2, leader_epoch=4))[0]
    assert "an epoch went back" in seen(created(), changed((1, 2, 3), 1, leader_epoch=3))[0]


def test_unclean_elections_stay_off() -> None:
    turned_on = ConfigChanged(ConfigResource.TOPIC, "t", "unclean.leader.election.enable", "true")
    assert "were enabled" in seen(turned_on)[0]
