"""What a leader with damaged uncommitted records says while no other leads."""

from millstream.broker.replicas.making_way import NotRepaired, why_it_leads
from support.replicated import Cluster


def waits(cluster: Cluster) -> NotRepaired:
    return why_it_leads(1, 7, cluster.partition(), cluster.image)


def led_by_one_with_two_eligible() -> Cluster:
    cluster = Cluster(1, 2)
    cluster.create(1, 2, min_insync_replicas=2)
    cluster.fence(2)
    assert cluster.led() == (1, (1,), (2,))
    return cluster


def test_a_node_that_is_away_is_to_be_started() -> None:
    found = waits(led_by_one_with_two_eligible())
    assert "uncommitted records from offset 7 on are damaged on node 1" in found.reason
    assert found.advice.startswith("start node 2; if the disk is lost: `millstream cluster remove 2 --force`")


def test_a_node_that_is_up_and_in_doubt_is_not_to_be_started() -> None:
    cluster = led_by_one_with_two_eligible()
    cluster.start(2)
    cluster.beat(2)
    p = cluster.partition()
    assert (p.elr, [each.broker_id for each in p.last_known_elr], cluster.image.is_live(2)) == ((), [2], True)
    found = waits(cluster)
    assert found.advice.startswith("start node 1 again")
    assert "none is up" not in found.reason


def test_for_one_that_has_just_come_there_is_nothing_to_do() -> None:
    cluster = led_by_one_with_two_eligible()
    cluster.beat(2)
    assert waits(cluster).advice == ""
