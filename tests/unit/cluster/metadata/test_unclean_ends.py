"""Brokers that come back without a clean stop: who of them may lead, and who is waited for."""

import uuid

from millstream.cluster.metadata.brokers import UnregisterBroker
from millstream.cluster.metadata.configs import AlterConfigs, ConfigAlteration, ConfigChange
from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage
from millstream.cluster.metadata.leader_elections import ElectLeaders
from millstream.cluster.metadata.records import LastKnownReplica, decode_records, encode_records
from support.replicated import Cluster


def killed(*replicas: int, **configs: object) -> Cluster:
    """All brokers ended at once, and the controller does not know yet who will come back with what."""
    cluster = Cluster(*replicas)
    cluster.create(*replicas, **{"min_insync_replicas": 2, **configs})
    return cluster


def last_known(cluster: Cluster) -> tuple[int, ...]:
    return tuple(each.broker_id for each in cluster.partition().last_known_elr)


def come_back(cluster: Cluster, broker: int, *end: int, is_whole: bool = False) -> None:
    cluster.register(broker)
    cluster.tell(broker, *end, is_whole=is_whole)
    cluster.beat(broker)


def test_a_broker_without_its_marker_leaves_the_sets_before_it_may_lead() -> None:
    cluster = killed(1, 2, 3)
    cluster.fence(2, 3)
    assert cluster.led() == (1, (1,), (3,))
    cluster.register(3)
    assert cluster.led() == (1, (1,), ())
    assert last_known(cluster) == (3,)


def test_one_that_lost_nothing_is_eligible_again() -> None:
    cluster = killed(1, 2, 3)
    cluster.fence(2, 3)
    come_back(cluster, 3, 0, 7, is_whole=True)
    assert cluster.led() == (1, (1,), (3,))
    assert last_known(cluster) == ()
    cluster.fence(1)
    assert cluster.led() == (3, (3,), (1,))


def test_one_that_cut_its_log_is_like_others_when_it_has_caught_up() -> None:
    cluster = killed(1, 2, 3)
    cluster.fence(2, 3)
    come_back(cluster, 3, 0, 7)
    assert cluster.led() == (1, (1,), ())
    assert last_known(cluster) == (3,)
    assert cluster.set_isr((1, 3)).error == 0
    assert cluster.led() == (1, (1, 3), ())
    assert last_known(cluster) == ()


def test_with_enough_in_sync_nobody_else_is_remembered() -> None:
    cluster = killed(1, 2, 3)
    cluster.register(3)
    assert cluster.led() == (1, (1, 2), ())
    assert last_known(cluster) == ()


def test_killed_all_at_once_the_first_that_lost_nothing_leads() -> None:
    cluster = killed(1, 2, 3)
    come_back(cluster, 1, 0, 4)
    assert cluster.partition().leader == 2
    cluster.register(2)
    cluster.fence(3)
    assert cluster.led() == (NO_LEADER, (), (3,))
    cluster.tell(2, 0, 9, is_whole=True)
    cluster.beat(2)
    assert cluster.led() == (2, (2,), (3,))


def test_the_last_leader_does_not_lead_with_a_log_that_it_had_to_cut() -> None:
    cluster = killed(1, 2)
    # That 1 has ended too is not known yet.
    come_back(cluster, 2, 0, 9)
    assert cluster.led() == (1, (1,), ())
    come_back(cluster, 1, 0, 4)
    assert cluster.led() == (NO_LEADER, (), ())
    cluster.tell(2, 0, 9, is_whole=False)
    assert cluster.led() == (2, (2,), ())


def test_what_was_told_of_an_earlier_epoch_does_not_count() -> None:
    cluster = killed(1, 2)
    come_back(cluster, 2, 0, 9)
    before = cluster.partition().leader_epoch
    come_back(cluster, 1, 0, 4)
    cluster.tell(2, 0, 9, is_whole=False, leader_epoch=before)
    assert cluster.led() == (NO_LEADER, (), ())


def test_where_all_had_to_cut_the_longest_log_of_the_newest_epoch_leads() -> None:
    cluster = killed(1, 2, 3)
    cluster.fence(3)
    cluster.fence(2, 1)
    assert cluster.led() == (NO_LEADER, (), (1, 2))
    come_back(cluster, 1, 3, 50)
    assert cluster.led() == (NO_LEADER, (), (2,))
    come_back(cluster, 2, 4, 40)
    assert cluster.led() == (2, (2,), ())
    assert cluster.partition().leader_epoch == 2


def test_one_that_may_have_lost_something_does_not_lead_while_nothing_is_known_of_the_other() -> None:
    cluster = killed(1, 2)
    cluster.register(2)
    come_back(cluster, 1, 0, 4)
    assert cluster.led() == (NO_LEADER, (), ())
    assert cluster.partition().last_known_elr == (LastKnownReplica(1, 0, 4), LastKnownReplica(2))


def test_two_that_tell_are_enough() -> None:
    cluster = killed(1, 2, 3, min_insync_replicas=3)
    cluster.fence(1, 2, 3)
    come_back(cluster, 3, 0, 9)
    assert cluster.led() == (NO_LEADER, (), (1, 2))
    come_back(cluster, 1, 0, 4)
    # One disk rots, not two: what 3 lacks was never acknowledged. 2 may stay away.
    assert cluster.led() == (3, (3,), (2,))
    assert last_known(cluster) == (1,)


def test_the_only_one_that_is_left_leads_with_what_it_has() -> None:
    cluster = killed(1, 2, min_insync_replicas=1)
    cluster.fence(2)
    come_back(cluster, 1, 0, 4)
    assert cluster.led() == (1, (1,), ())


def test_the_best_is_waited_for_when_it_went_again() -> None:
    cluster = killed(1, 2)
    cluster.fence(1, 2)
    cluster.register(2)
    cluster.tell(2, 0, 9, is_whole=False)
    come_back(cluster, 1, 0, 4)
    assert cluster.led() == (NO_LEADER, (), ())
    cluster.beat(2)
    assert cluster.led() == (2, (2,), ())


def test_what_was_told_before_another_unclean_end_does_not_count() -> None:
    cluster = killed(1, 2)
    cluster.fence(1, 2)
    cluster.register(2)
    cluster.tell(2, 0, 9, is_whole=False)
    cluster.register(2)
    come_back(cluster, 1, 0, 4)
    assert cluster.led() == (NO_LEADER, (), ())
    assert cluster.partition().last_known_elr[1] == LastKnownReplica(2)


def test_what_was_told_goes_with_a_snapshot_and_survives_the_controller() -> None:
    cluster = killed(1, 2)
    cluster.fence(1, 2)
    cluster.register(2)
    cluster.tell(2, 3, 9, is_whole=False)
    cluster.register(1, min_insync=2)
    stored = encode_records(list(difference(MetadataImage(), cluster.image)))
    assert MetadataImage().apply(decode_records(stored)) == cluster.image
    cluster.image = MetadataImage().apply(decode_records(stored))
    cluster.tell(1, 3, 4, is_whole=False)
    cluster.beat(1)
    cluster.beat(2)
    assert cluster.led() == (2, (2,), ())


def test_another_disk_is_not_waited_for() -> None:
    cluster = Cluster()
    disks = {broker: uuid.uuid4() for broker in (1, 2)}
    for broker in (1, 2):
        cluster.start(broker, directory=disks[broker])
    cluster.create(1, 2, min_insync_replicas=2)
    cluster.register(2, directory=uuid.uuid4())
    assert last_known(cluster) == ()
    cluster.register(1, directory=disks[1])
    cluster.tell(1, 0, 4, is_whole=False)
    cluster.beat(1)
    assert cluster.led() == (1, (1,), ())


def test_a_broker_that_is_removed_is_not_waited_for() -> None:
    cluster = killed(1, 2)
    cluster.register(2)
    come_back(cluster, 1, 0, 4)
    assert cluster.led() == (NO_LEADER, (), ())
    cluster.do(UnregisterBroker(2))
    assert cluster.led() == (1, (1,), ())


def test_an_unclean_election_takes_the_one_that_has_most() -> None:
    cluster = killed(1, 2, 3, min_insync_replicas=3)
    for broker in (1, 2, 3):
        cluster.register(broker)
    cluster.beat(1)
    cluster.tell(2, 0, 9, is_whole=False)
    cluster.beat(2)
    assert cluster.led() == (NO_LEADER, (), ())
    cluster.do(ElectLeaders(1, (("t", 0),)))
    assert cluster.led() == (2, (2,), ())
    assert last_known(cluster) == ()


def test_the_only_replica_of_a_partition_need_not_tell() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1)
    cluster.start(1)
    assert cluster.led() == (1, (1,), ())


def test_a_minimum_of_the_brokers_files_makes_replicas_eligible() -> None:
    cluster = Cluster()
    for broker in (1, 2, 3):
        cluster.register(broker, min_insync=2)
        cluster.beat(broker)
    cluster.create(1, 2, 3)
    cluster.fence(3)
    cluster.fence(2)
    assert cluster.led() == (1, (1,), (2,))
    # A broker that goes by less might acknowledge alone.
    cluster.register(3, min_insync=1)
    assert cluster.led() == (1, (1,), ())


def given_up(*replicas: int) -> Cluster:
    """Broker 1 alone has all, and is given up with its disk."""
    cluster = killed(*replicas, min_insync_replicas=1)
    cluster.set_isr((1,))
    cluster.fence(1)
    cluster.do(UnregisterBroker(1))
    return cluster


def test_when_all_that_had_everything_are_given_up_the_one_with_most_leads() -> None:
    """Nobody would lead for ever otherwise: a data directory that was given up cannot come back."""
    cluster = given_up(1, 2, 3)
    assert cluster.led() == (NO_LEADER, (), ())
    assert last_known(cluster) == (2, 3)
    cluster.tell(2, 0, 5, is_whole=True)
    assert cluster.led() == (NO_LEADER, (), ()), "its log is whole, but another may have more"
    cluster.tell(3, 0, 9, is_whole=True)
    assert cluster.led() == (3, (3,), ())
    assert last_known(cluster) == ()


def test_what_is_left_is_not_taken_for_one_that_has_all_when_another_leads() -> None:
    cluster = killed(1, 2, 3, min_insync_replicas=1)
    cluster.set_isr((1,))
    raised = ConfigAlteration(2, "t", (ConfigChange("min.insync.replicas", "2"),))
    assert cluster.do(AlterConfigs((raised,)))[0].error is None
    cluster.fence(1)
    cluster.do(UnregisterBroker(1))
    for broker, end in ((2, 5), (3, 9)):
        cluster.tell(broker, 0, end, is_whole=True)
    assert cluster.led() == (3, (3,), ()), "broker 2 is not eligible, though too few are in sync"
    assert last_known(cluster) == ()


def test_what_is_left_waits_for_nobody_that_was_given_up() -> None:
    cluster = given_up(1, 2)
    cluster.tell(2, 0, 5, is_whole=False)
    assert cluster.led() == (2, (2,), ())


def test_one_that_is_left_and_restarts_tells_again_and_is_still_not_sure() -> None:
    cluster = given_up(1, 2, 3)
    cluster.tell(2, 0, 9, is_whole=True)
    cluster.register(2)
    assert [each.end_offset for each in cluster.partition().last_known_elr] == [-1, -1]
    cluster.tell(3, 0, 5, is_whole=True)
    cluster.tell(2, 0, 9, is_whole=True)
    cluster.beat(2)
    assert cluster.led() == (2, (2,), ())


def test_a_partition_of_which_nothing_is_left_begins_again_with_its_broker() -> None:
    cluster = given_up(1, 2)
    cluster.do(UnregisterBroker(2))
    cluster.register(1)
    cluster.beat(1)
    assert cluster.led() == (NO_LEADER, (), ())
    cluster.register(2)
    cluster.beat(2)
    for broker in (1, 2):
        cluster.tell(broker, -1, 0, is_whole=True)
    assert cluster.led()[0] in (1, 2)
