"""A change of an in-sync set is checked in the order of the rules, and each check has its own answer."""

import uuid

import pytest
from msgspec.structs import replace

from millstream.cluster.metadata.command_codec import (
    decode_command,
    decode_result,
    encode_command,
    encode_result,
)
from millstream.cluster.metadata.in_sync_sets import ChangeInSyncSets, InSyncChange
from millstream.protocol.errors import ErrorCode, KafkaError
from support.replicated import Cluster


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create(1, 2, 3)
    cluster.fence(1)
    cluster.beat(1)
    # Led by 2 in epoch 1.
    return cluster


def change(cluster: Cluster, *isr: int) -> InSyncChange:
    p = cluster.partition()
    members = tuple((broker, cluster.image.brokers[broker].epoch) for broker in isr)
    return InSyncChange(cluster.image.topics["t"].topic_id, 0, p.leader_epoch, members, p.partition_epoch)


def error_of(cluster: Cluster, wanted: InSyncChange, sender: int = 2) -> ErrorCode:
    command = ChangeInSyncSets(sender, cluster.image.brokers[sender].epoch, (wanted,))
    decision = command.decide(cluster.image, uuid.uuid4)
    assert not decision.records or decision.result[0].error in (0, ErrorCode.INELIGIBLE_REPLICA)
    return ErrorCode(decision.result[0].error)


def test_the_leader_takes_a_replica_in(cluster: Cluster) -> None:
    before = cluster.partition()
    result = cluster.set_isr((2, 3, 1))
    after = cluster.partition()
    assert (result.error, result.leader, result.isr) == (0, 2, (2, 3, 1))
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1)
    assert (result.leader_epoch, result.partition_epoch) == (after.leader_epoch, after.partition_epoch)


def test_the_set_that_is_there_already_needs_no_record(cluster: Cluster) -> None:
    command = ChangeInSyncSets(2, cluster.image.brokers[2].epoch, (change(cluster, 3, 2),))
    decision = command.decide(cluster.image, uuid.uuid4)
    assert (decision.records, decision.result[0].error, decision.result[0].isr) == ((), 0, (2, 3))


def test_each_check_has_its_error_and_comes_before_the_next(cluster: Cluster) -> None:
    """From a change that breaks every rule, the rules are mended one after the other."""
    cluster.fence(3)
    p = cluster.partition()
    wanted = replace(
        change(cluster), leader_epoch=p.leader_epoch - 1, partition_epoch=p.partition_epoch - 1, isr=((4, 0),)
    )
    assert error_of(cluster, wanted, sender=1) is ErrorCode.FENCED_LEADER_EPOCH
    assert error_of(cluster, replace(wanted, leader_epoch=99), sender=1) is ErrorCode.NOT_CONTROLLER
    wanted = replace(wanted, leader_epoch=p.leader_epoch)
    assert error_of(cluster, wanted, sender=1) is ErrorCode.INVALID_REQUEST
    assert error_of(cluster, wanted) is ErrorCode.INVALID_UPDATE_VERSION
    assert error_of(cluster, replace(wanted, partition_epoch=99)) is ErrorCode.NOT_CONTROLLER
    wanted = replace(wanted, partition_epoch=p.partition_epoch)
    assert error_of(cluster, wanted) is ErrorCode.INVALID_REQUEST  # 4 is no replica
    assert error_of(cluster, replace(wanted, isr=change(cluster, 1).isr)) is ErrorCode.INVALID_REQUEST
    twice = change(cluster, 2, 2).isr
    assert error_of(cluster, replace(wanted, isr=twice)) is ErrorCode.INVALID_REQUEST
    fenced = change(cluster, 2, 3).isr
    assert error_of(cluster, replace(wanted, isr=fenced)) is ErrorCode.INELIGIBLE_REPLICA
    assert error_of(cluster, replace(wanted, isr=change(cluster, 2, 1).isr)) is ErrorCode.NONE


def test_a_member_of_an_earlier_life_is_refused(cluster: Cluster) -> None:
    wanted = change(cluster, 2, 1)
    cluster.start(1)
    assert error_of(cluster, wanted) is ErrorCode.INELIGIBLE_REPLICA


def test_a_member_on_its_way_out_is_refused(cluster: Cluster) -> None:
    cluster.beat(1, wants_to_stop=True)
    assert error_of(cluster, change(cluster, 2, 1)) is ErrorCode.INELIGIBLE_REPLICA


def test_what_was_refused_is_not_made_by_an_earlier_attempt_that_comes_later(cluster: Cluster) -> None:
    """The leader was told that the change is not made, and commits without the replica from then on."""
    attempt = ChangeInSyncSets(2, cluster.image.brokers[2].epoch, (change(cluster, 2, 3, 1),))
    cluster.fence(1)
    assert cluster.do(attempt)[0].error == ErrorCode.INELIGIBLE_REPLICA
    cluster.beat(1)
    assert cluster.do(attempt)[0].error == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.partition().isr == (2, 3)


def test_unknown_partitions_and_topics(cluster: Cluster) -> None:
    wanted = change(cluster, 2)
    assert error_of(cluster, replace(wanted, index=7)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(cluster, replace(wanted, topic_id=uuid.uuid4())) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_sender_of_an_earlier_life_is_told_so(cluster: Cluster) -> None:
    epoch = cluster.image.brokers[2].epoch
    command = ChangeInSyncSets(2, epoch - 1, (change(cluster, 2),))
    with pytest.raises(KafkaError) as caught:
        command.decide(cluster.image, uuid.uuid4)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_several_changes_are_answered_in_their_order(cluster: Cluster) -> None:
    cluster.create(2, 3, topic="u")
    other = replace(change(cluster, 2), topic_id=uuid.uuid4())
    mine = change(cluster, 2)
    results = cluster.do(ChangeInSyncSets(2, cluster.image.brokers[2].epoch, (other, mine, mine)))
    assert [each.error for each in results] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


def test_it_is_sent_to_the_controller_and_back(cluster: Cluster) -> None:
    command = ChangeInSyncSets(2, cluster.image.brokers[2].epoch, (change(cluster, 2, 1),))
    assert decode_command(encode_command(command)) == command
    result = command.decide(cluster.image, uuid.uuid4).result
    assert decode_result(command, encode_result(result)) == result
