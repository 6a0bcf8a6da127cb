"""Who leads after brokers go and come: each rule in a story of its own."""

import uuid

import pytest

from millstream.cluster.metadata.brokers import UnregisterBroker
from millstream.cluster.metadata.configs import AlterConfigs, ConfigAlteration, ConfigChange
from millstream.cluster.metadata.election import min_insync
from millstream.cluster.metadata.image import NO_LEADER
from millstream.cluster.metadata.records import ConfigResource
from millstream.protocol.errors import ErrorCode, KafkaError
from support.replicated import Cluster


def alter(cluster: Cluster, key: str, value: str, topic: str = "t") -> None:
    change = ConfigAlteration(ConfigResource.TOPIC, topic, (ConfigChange(key, value),))
    (outcome,) = cluster.do(AlterConfigs((change,)))
    assert outcome.error is None


def test_a_new_partition_is_led_by_its_first_live_replica_and_all_live_ones_are_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.fence(2)
    cluster.create(2, 3, 1)
    assert cluster.led() == (3, (3, 1), ())
    assert cluster.partition().leader_epoch == 0


def test_a_leader_that_falls_silent_is_followed_by_the_first_replica_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3)
    cluster.fence(1)
    assert cluster.led() == (2, (2, 3), ())
    assert (cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (1, 1)


def test_a_follower_that_falls_silent_changes_the_set_and_not_the_leaders_epoch() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3)
    cluster.fence(3)
    assert cluster.led() == (1, (1, 2), ())
    assert (cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (0, 1)


def test_a_valid_leader_stays_when_a_better_one_comes_back() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3)
    cluster.fence(1)
    before = cluster.partition()
    cluster.beat(1)
    assert cluster.partition() == before


def test_a_replica_that_is_not_in_sync_is_passed_over() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3)
    assert cluster.set_isr((1, 3)).error == 0
    cluster.fence(1)
    assert cluster.led() == (3, (3,), ())


def test_the_last_one_in_sync_stays_eligible_and_leads_when_it_is_back() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2)
    cluster.fence(2, 1)
    assert cluster.led() == (NO_LEADER, (), (1,))
    cluster.beat(2)
    assert cluster.led() == (NO_LEADER, (), (1,))
    cluster.beat(1)
    assert cluster.led() == (1, (1,), ())


def test_below_the_minimum_who_leaves_stays_eligible() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3, min_insync_replicas=2)
    cluster.fence(3)
    assert cluster.led() == (1, (1, 2), ())
    cluster.fence(2)
    assert cluster.led() == (1, (1,), (2,))
    cluster.fence(1)
    assert cluster.led() == (NO_LEADER, (), (1, 2))
    # Nothing was acknowledged since 2 left, so that it has all that 1 has.
    cluster.beat(2)
    assert cluster.led() == (2, (2,), (1,))
    cluster.beat(1)
    assert cluster.set_isr((2, 1)).error == 0
    assert cluster.led() == (2, (2, 1), ())


def test_a_leader_that_shrinks_below_the_minimum_leaves_the_lost_ones_eligible() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3, min_insync_replicas=2)
    assert cluster.set_isr((1,)).error == 0
    assert cluster.led() == (1, (1,), (2, 3))


def test_a_lower_minimum_takes_eligibility_away_in_the_same_change() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3, min_insync_replicas=2)
    assert cluster.set_isr((1,)).error == 0
    alter(cluster, "min.insync.replicas", "1")
    assert cluster.led() == (1, (1,), ())
    assert cluster.partition().leader_epoch == 0


def test_the_minimum_is_capped_at_the_replicas() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2, min_insync_replicas=5)
    assert min_insync(cluster.image, cluster.image.topics["t"]) == 2
    cluster.fence(2)
    assert cluster.led() == (1, (1,), (2,))


def test_unclean_only_where_the_topic_allows_it() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2, topic="safe")
    cluster.create(1, 2, topic="loose", unclean_leader_election_enable="true")
    for topic in ("safe", "loose"):
        assert cluster.set_isr((1,), topic).error == 0
    cluster.fence(1)
    assert cluster.led("safe") == (NO_LEADER, (), (1,))
    assert cluster.led("loose") == (2, (2,), ())


def test_allowing_it_elects_at_once() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2)
    assert cluster.set_isr((1,)).error == 0
    cluster.fence(1)
    alter(cluster, "unclean.leader.election.enable", "true")
    assert cluster.led() == (2, (2,), ())


def test_a_controlled_stop_moves_leaders_and_leaves_the_sets() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3, topic="leads")
    cluster.create(2, 1, topic="follows")
    cluster.create(1, topic="alone")
    cluster.beat(1, wants_to_stop=True)
    assert cluster.led("leads") == (2, (2, 3), ())
    assert cluster.led("follows") == (2, (2,), ())
    assert cluster.led("alone") == (NO_LEADER, (), (1,))
    assert cluster.image.brokers[1].is_shutting_down


def test_a_sign_of_life_that_was_under_way_does_not_undo_a_stop() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2)
    cluster.beat(1, wants_to_stop=True)
    cluster.beat(1)
    assert cluster.image.brokers[1].is_fenced
    assert cluster.led() == (2, (2,), ())


def test_after_a_clean_stop_of_all_the_last_one_leads_again() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2)
    cluster.beat(1, wants_to_stop=True)
    cluster.beat(2, wants_to_stop=True)
    assert cluster.led() == (NO_LEADER, (), (2,))
    cluster.start_cleanly(1)
    assert cluster.led() == (NO_LEADER, (), (2,))
    cluster.start_cleanly(2)
    assert cluster.led() == (2, (2,), ())


def test_an_empty_disk_under_an_old_id_is_not_elected() -> None:
    cluster = Cluster()
    disks = {broker: uuid.uuid4() for broker in (1, 2)}
    for broker in (1, 2):
        cluster.start(broker, directory=disks[broker])
    cluster.create(1, 2)
    cluster.fence(2, 1)
    cluster.start(1, directory=uuid.uuid4())
    assert cluster.led() == (NO_LEADER, (), ())
    cluster.start(2, directory=disks[2])
    assert cluster.led() == (NO_LEADER, (), ())


def test_the_only_replica_keeps_its_partition_with_a_new_epoch() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1)
    cluster.start(1)
    assert cluster.led() == (1, (1,), ())
    assert cluster.partition().leader_epoch == 2


def test_an_unregistered_broker_never_leads() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2)
    epoch = cluster.image.brokers[2].epoch
    cluster.do(UnregisterBroker(2))
    assert cluster.led() == (1, (1,), ())
    cluster.fence(1)
    cluster.do(UnregisterBroker(1))
    assert cluster.led() == (NO_LEADER, (), ())
    cluster.start(2)
    assert cluster.led() == (NO_LEADER, (), ())
    assert cluster.image.brokers[2].epoch > epoch


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_a_live_broker_that_alone_has_everything_cannot_be_unregistered(replicas: tuple[int, ...]) -> None:
    """A topic that was created behind the back of whoever moved all replicas away would be lost."""
    cluster = Cluster(1, 2, 3)
    cluster.create(*replicas, min_insync_replicas=1)
    cluster.set_isr((1,))
    cluster.do(UnregisterBroker(3))
    with pytest.raises(KafkaError, match="it alone has everything of t-0") as caught:
        cluster.do(UnregisterBroker(1))
    assert caught.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert cluster.led() == (1, (1,), ())
    cluster.fence(1)
    cluster.do(UnregisterBroker(1))
    assert 1 not in cluster.image.brokers, "one that is lost can be given up"


def test_a_live_broker_goes_where_another_has_everything_too() -> None:
    cluster = Cluster(1, 2)
    cluster.create(1, 2, min_insync_replicas=2)
    cluster.fence(2)
    assert cluster.led() == (1, (1,), (2,))
    cluster.do(UnregisterBroker(1))
    cluster.start_cleanly(2)
    assert cluster.led() == (2, (2,), ())
