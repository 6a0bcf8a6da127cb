"""Partitions move to other replicas: first more of them, then the old ones go; or everything is called off."""

import uuid

from millstream.cluster.metadata.brokers import UnregisterBroker
from millstream.cluster.metadata.command_codec import (
    decode_command,
    decode_result,
    encode_command,
    encode_result,
)
from millstream.cluster.metadata.image import NO_LEADER
from millstream.cluster.metadata.leader_elections import RestorePreferredLeaders
from millstream.cluster.metadata.partitions import CreatePartitions, PartitionIncrease
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment
from millstream.protocol.errors import ErrorCode
from support.replicated import Cluster

NEW_LEADER = ErrorCode.NEW_LEADER_ELECTED


def reassign(cluster: Cluster, *replicas: int, cancel: bool = False, same_factor: bool = False) -> ErrorCode:
    wanted = Reassignment("t", 0, None if cancel else replicas)
    (outcome,) = cluster.do(AlterReassignments((wanted,), allow_other_factor=not same_factor))
    return ErrorCode.NONE if outcome.error is None else outcome.error.code


def three() -> Cluster:
    cluster = Cluster(1, 2, 3, 4, 5)
    cluster.create(1, 2, 3)
    return cluster


def test_new_replicas_come_first_and_old_ones_go_when_all_new_ones_are_in_sync() -> None:
    cluster = three()
    assert reassign(cluster, 3, 4, 5) is ErrorCode.NONE
    p = cluster.partition()
    assert (p.replicas, p.adding, p.removing) == ((3, 4, 5, 1, 2), (4, 5), (1, 2))
    assert (p.leader, p.isr, p.leader_epoch) == (1, (1, 2, 3), 0)
    assert cluster.set_isr((1, 2, 3, 4)).error == 0
    assert cluster.partition().adding == (4, 5)
    assert cluster.set_isr((1, 2, 3, 4, 5)).error == NEW_LEADER
    p = cluster.partition()
    assert (p.replicas, p.isr, p.adding, p.removing) == ((3, 4, 5), (3, 4, 5), (), ())
    assert (p.leader, p.leader_epoch) == (3, 1)


def test_a_leader_that_stays_leads_on_with_a_new_epoch_that_shuts_the_old_ones_out() -> None:
    cluster = three()
    assert reassign(cluster, 1, 4) is ErrorCode.NONE
    assert cluster.set_isr((1, 2, 3, 4)).error == NEW_LEADER
    p = cluster.partition()
    assert (p.replicas, p.leader, p.leader_epoch) == ((1, 4), 1, 1)


def test_fewer_replicas_at_the_leaders_word() -> None:
    cluster = three()
    assert reassign(cluster, 1) is ErrorCode.NONE
    assert cluster.set_isr((1, 2, 3), may_end_move=False).error == 0
    assert cluster.partition().removing == (2, 3)
    assert cluster.set_isr((1, 2, 3)).error == NEW_LEADER
    assert cluster.partition().replicas == (1,)
    assert cluster.led() == (1, (1,), ())


def test_fewer_replicas_at_once_where_those_that_go_are_not_in_sync() -> None:
    cluster = three()
    cluster.fence(2, 3)
    assert reassign(cluster, 1) is ErrorCode.NONE
    assert cluster.partition().replicas == (1,)


def test_a_move_goes_on_when_its_leader_is_replaced_by_the_preferred_one() -> None:
    """The one that was replaced may not know it yet, so the move ends when the new leader has heard of it."""
    cluster = three()
    assert reassign(cluster, 3, 2) is ErrorCode.NONE
    assert cluster.do(RestorePreferredLeaders()) == 1
    p = cluster.partition()
    assert (p.leader, p.isr, p.removing) == (3, (1, 2, 3), (1,))
    assert cluster.set_isr((1, 2, 3), may_end_move=False).error == 0
    assert cluster.partition().removing == (1,)
    assert cluster.set_isr((1, 2, 3)).error == NEW_LEADER
    p = cluster.partition()
    assert (p.leader, p.replicas, p.isr, p.removing) == (3, (3, 2), (2, 3), ())


def test_a_move_takes_no_copy_away_that_the_minimum_needs() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3, min_insync_replicas=2)
    cluster.fence(2)
    assert reassign(cluster, 1, 2) is ErrorCode.NONE
    assert cluster.set_isr((1, 3)).error == 0
    assert cluster.partition().removing == (3,)
    cluster.beat(2)
    assert cluster.set_isr((1, 3, 2)).error == NEW_LEADER
    assert cluster.partition().replicas == (1, 2)
    assert cluster.led() == (1, (1, 2), ())


def test_a_move_keeps_the_copy_of_a_replica_that_has_just_ended_until_the_minimum_is_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(2, 1, 3, min_insync_replicas=2)
    assert reassign(cluster, 2, 1) is ErrorCode.NONE
    cluster.fence(1, 2)
    cluster.beat(2)
    assert cluster.led() == (3, (3,), (2,))
    cluster.start(3)
    assert cluster.led()[:2] == (2, (2,))
    assert cluster.partition().removing == (3,)
    assert cluster.set_isr((2, 3)).error == 0
    assert cluster.partition().removing == (3,)
    cluster.beat(1)
    assert cluster.set_isr((2, 3, 1)).error == NEW_LEADER
    assert cluster.partition().replicas == (2, 1)


def test_a_move_that_was_called_off_replaces_its_new_leader_at_its_own_word() -> None:
    cluster = three()
    reassign(cluster, 4, 5)
    assert cluster.set_isr((1, 2, 3, 4)).error == 0
    assert cluster.do(RestorePreferredLeaders()) == 1
    assert reassign(cluster, cancel=True) is ErrorCode.NONE
    p = cluster.partition()
    assert (p.leader, set(p.replicas), p.adding, p.removing) == (4, {1, 2, 3, 4}, (4,), (4,))
    assert cluster.set_isr((1, 2, 3, 4)).error == NEW_LEADER
    p = cluster.partition()
    assert (p.leader, set(p.replicas), p.removing) == (1, {1, 2, 3}, ())


def test_a_leader_that_leaves_is_replaced_at_its_own_word() -> None:
    """Before it knows, it would answer with what is not the newest any more."""
    cluster = three()
    assert reassign(cluster, 2) is ErrorCode.NONE
    p = cluster.partition()
    assert (p.leader, p.replicas, p.removing) == (1, (2, 1, 3), (1, 3))
    assert cluster.set_isr((1, 2, 3)).error == ErrorCode.NEW_LEADER_ELECTED
    assert cluster.partition().replicas == (2,)
    assert cluster.led() == (2, (2,), ())


def test_another_order_is_another_preferred_leader_and_no_other_leader() -> None:
    cluster = three()
    assert reassign(cluster, 3, 2, 1) is ErrorCode.NONE
    p = cluster.partition()
    assert (p.replicas, p.leader, p.leader_epoch, p.partition_epoch) == ((3, 2, 1), 1, 0, 1)
    assert reassign(cluster, 3, 2, 1) is ErrorCode.NONE
    assert cluster.partition() == p


def test_called_off_half_way() -> None:
    cluster = three()
    assert reassign(cluster, cancel=True) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(cluster, 4, 5)
    assert reassign(cluster, cancel=True) is ErrorCode.NONE
    p = cluster.partition()
    assert (set(p.replicas), p.isr, p.adding, p.removing) == ({1, 2, 3}, (1, 2, 3), (), ())
    assert p.leader_epoch == 1  # whoever was added may be so again


def test_one_that_was_added_and_is_in_sync_goes_at_the_leaders_word_when_the_move_is_called_off() -> None:
    """It may have led until a moment ago, and would answer reads by its lease while others commit without it."""
    cluster = three()
    reassign(cluster, 4, 5)
    assert cluster.set_isr((1, 2, 3, 4)).error == 0
    assert cluster.do(RestorePreferredLeaders()) == 1
    cluster.fence(4)
    cluster.beat(4)
    assert cluster.partition().leader == 1
    assert cluster.set_isr((1, 2, 3, 4)).error == 0
    assert reassign(cluster, cancel=True) is ErrorCode.NONE
    assert cluster.partition().isr == (1, 2, 3, 4)
    assert cluster.set_isr((1, 2, 3, 4), may_end_move=False).error == 0
    assert cluster.partition().isr == (1, 2, 3, 4)
    assert cluster.set_isr((1, 2, 3, 4)).error == NEW_LEADER
    p = cluster.partition()
    assert (set(p.replicas), p.isr, p.adding, p.removing) == ({1, 2, 3}, (1, 2, 3), (), ())


def test_a_move_that_is_called_off_twice_is_called_off() -> None:
    """The answer to the first request was lost. The second kept the replica that was to go."""
    cluster = three()
    reassign(cluster, 4, 5)
    assert cluster.set_isr((1, 2, 3, 4)).error == 0
    assert cluster.do(RestorePreferredLeaders()) == 1
    assert reassign(cluster, cancel=True) is ErrorCode.NONE
    before = cluster.partition()
    assert reassign(cluster, cancel=True) is ErrorCode.NONE
    assert cluster.partition() == before
    assert reassign(cluster, 1, 2, 3) is ErrorCode.NONE
    assert cluster.partition() == before
    # A change of mind is possible until then.
    assert reassign(cluster, 4, 5) is ErrorCode.NONE
    assert (cluster.partition().adding, set(cluster.partition().removing)) == ((4, 5), {1, 2, 3})


def test_called_off_when_only_the_new_ones_have_the_data_it_waits_for_the_old_ones() -> None:
    cluster = three()
    reassign(cluster, 4, 5)
    assert cluster.set_isr((1, 4)).error == 0
    cluster.fence(1)
    assert cluster.led() == (4, (4,), ())
    assert reassign(cluster, cancel=True) is ErrorCode.NONE
    assert cluster.set_isr((4,)).error == 0
    assert cluster.led() == (4, (4,), ())
    assert cluster.set_isr((4, 2)).error == NEW_LEADER
    assert cluster.led() == (2, (2,), ())


def test_a_change_of_mind_counts_from_what_there_was_before() -> None:
    cluster = three()
    reassign(cluster, 1, 2, 4)
    assert reassign(cluster, 1, 2, 5) is ErrorCode.NONE
    p = cluster.partition()
    assert (p.replicas, p.adding, p.removing) == ((1, 2, 5, 3), (5,), (3,))


def test_it_goes_on_when_brokers_fall_silent() -> None:
    cluster = three()
    reassign(cluster, 4, 5)
    cluster.fence(1, 2, 3)
    assert cluster.led() == (NO_LEADER, (), (3,))
    cluster.beat(3)
    assert cluster.set_isr((3, 4, 5)).error == NEW_LEADER
    assert cluster.partition().replicas == (4, 5)
    assert cluster.led() == (4, (4, 5), ())


def test_what_cannot_be_is_refused() -> None:
    cluster = three()
    assert reassign(cluster, 1, 9) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, 1, 1) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, 1, 2, same_factor=True) is ErrorCode.INVALID_REPLICATION_FACTOR
    (outcome,) = cluster.do(AlterReassignments((Reassignment("no", 0, (1,)),)))
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    twice = (Reassignment("t", 0, (1,)), Reassignment("t", 0, (2,)))
    (outcome,) = cluster.do(AlterReassignments(twice))
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.INVALID_REQUEST


def test_partitions_added_meanwhile_have_the_number_of_replicas_that_is_aimed_at() -> None:
    cluster = three()
    reassign(cluster, 4, 5)
    (outcome,) = cluster.do(CreatePartitions((PartitionIncrease("t", 2),)))
    assert outcome.error is None
    assert len(cluster.image.topics["t"].partitions[1].replicas) == 2


def test_it_is_sent_to_the_controller_and_back() -> None:
    cluster = three()
    command = AlterReassignments((Reassignment("t", 0, (4, 5)), Reassignment("no", 1, None)), True)
    assert decode_command(encode_command(command)) == command
    result = command.decide(cluster.image, uuid.uuid4).result
    decoded = decode_result(command, encode_result(result))
    assert [each.index for each in decoded] == [0, 1]
    assert decoded[1].error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def lost_broker(cluster: Cluster, broker: int) -> None:
    cluster.fence(broker)
    cluster.do(UnregisterBroker(broker))


def test_a_partition_whose_only_replica_was_given_up_begins_again_where_it_is_moved_to() -> None:
    """Nobody would lead for ever otherwise: a data directory that was given up cannot come back."""
    cluster = Cluster(1, 4)
    cluster.create(1)
    lost_broker(cluster, 1)
    assert cluster.led() == (NO_LEADER, (), (1,)), "a new broker of that id may begin with nothing"
    assert reassign(cluster, 4) is ErrorCode.NONE
    cluster.tell(4, -1, 0, is_whole=True)
    p = cluster.partition()
    assert (p.leader, p.replicas, p.isr, p.adding, p.removing) == (4, (4,), (4,), (), ())


def test_a_partition_that_is_away_and_not_given_up_is_waited_for_when_it_is_moved() -> None:
    cluster = Cluster(1, 4)
    cluster.create(1)
    cluster.fence(1)
    assert reassign(cluster, 4) is ErrorCode.NONE
    cluster.tell(4, -1, 0, is_whole=True)
    assert cluster.led() == (NO_LEADER, (), (1,))


def test_a_move_ends_when_the_old_replica_is_given_up_and_the_new_one_leads() -> None:
    """Its leader has no change of the in-sync set to tell, so nothing else would end it."""
    cluster = Cluster(1, 4)
    cluster.create(1)
    assert reassign(cluster, 4) is ErrorCode.NONE
    lost_broker(cluster, 1)
    cluster.tell(4, -1, 0, is_whole=True)
    p = cluster.partition()
    assert (p.leader, p.replicas, p.isr, p.adding, p.removing) == (4, (4,), (4,), (), ())
