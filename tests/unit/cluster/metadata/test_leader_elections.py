"""Elections on request, and preferred leaders back by themselves."""

import uuid

import pytest

from millstream.cluster.metadata.command_codec import (
    decode_command,
    decode_result,
    encode_command,
    encode_result,
)
from millstream.cluster.metadata.image import NO_LEADER
from millstream.cluster.metadata.leader_elections import (
    ElectionType,
    ElectLeaders,
    MakeWay,
    RestorePreferredLeaders,
)
from millstream.protocol.errors import ErrorCode, KafkaError
from support.replicated import Cluster


def elect(cluster: Cluster, kind: ElectionType, topic: str = "t", index: int = 0) -> ErrorCode:
    (outcome,) = cluster.do(ElectLeaders(kind, ((topic, index),)))
    return ErrorCode.NONE if outcome.error is None else outcome.error.code


def displaced() -> Cluster:
    """Led by 2, though 1 is preferred, alive and in sync."""
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3)
    cluster.fence(1)
    cluster.beat(1)
    assert cluster.set_isr((2, 3, 1)).error == 0
    return cluster


def request_to_make_way(cluster: Cluster) -> MakeWay:
    """As the leader asks for it."""
    p, image = cluster.partition(), cluster.image
    topic_id, broker_epoch = image.topics["t"].topic_id, image.brokers[p.leader].epoch
    return MakeWay(p.leader, broker_epoch, topic_id, 0, p.leader_epoch, p.partition_epoch)


def make_way(cluster: Cluster) -> bool:
    return cluster.do(request_to_make_way(cluster))


def test_a_leader_makes_way_for_one_that_is_in_sync_or_eligible() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3, min_insync_replicas=3)
    assert cluster.set_isr((1, 3)).error == 0
    assert cluster.led() == (1, (1, 3), (2,))
    assert make_way(cluster)
    assert cluster.led() == (3, (3,), (2,)), (
        "what it cannot read may have been acknowledged: it counts for nothing"
    )
    assert make_way(cluster)
    assert cluster.led() == (2, (2,), ())
    assert cluster.partition().leader_epoch == 2


def test_a_leader_makes_way_for_nobody_else() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(1, 2, 3, unclean_leader_election_enable="true")
    assert cluster.set_isr((1, 2)).error == 0
    cluster.fence(2)
    assert not make_way(cluster), "3 is alive, and lacks what was acknowledged without it"
    assert cluster.led() == (1, (1,), ())


def test_who_was_told_that_nobody_can_replace_it_is_not_replaced_by_an_earlier_attempt() -> None:
    """It answers clients again from then on."""
    cluster = Cluster(1, 2)
    cluster.create(1, 2, min_insync_replicas=2)
    attempt = request_to_make_way(cluster)
    cluster.fence(2)
    assert not cluster.do(attempt), "it is of another state of the partition"
    attempt = request_to_make_way(cluster)
    assert not cluster.do(attempt)
    cluster.beat(2)
    assert not cluster.do(attempt)
    assert cluster.led() == (1, (1,), (2,))
    assert make_way(cluster)


def test_who_asks_again_hears_that_another_leads() -> None:
    """The first answer was lost: one that heard that nobody can lead would answer clients beside the new leader."""
    cluster = Cluster(1, 2)
    cluster.create(1, 2)
    attempt = request_to_make_way(cluster)
    assert cluster.do(attempt)
    after = cluster.partition()
    assert after.leader == 2
    assert cluster.do(attempt)
    assert cluster.partition() == after


def test_the_preferred_leader_is_elected_again() -> None:
    cluster = displaced()
    epoch = cluster.partition().leader_epoch
    assert elect(cluster, ElectionType.PREFERRED) is ErrorCode.NONE
    assert cluster.partition().leader == 1
    assert cluster.partition().leader_epoch == epoch + 1
    assert elect(cluster, ElectionType.PREFERRED) is ErrorCode.ELECTION_NOT_NEEDED


def test_not_while_it_is_not_in_sync() -> None:
    cluster = displaced()
    assert cluster.set_isr((2, 3)).error == 0
    before = cluster.partition()
    assert elect(cluster, ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.partition() == before


def test_unclean_only_without_a_leader() -> None:
    cluster = displaced()
    assert elect(cluster, ElectionType.UNCLEAN) is ErrorCode.ELECTION_NOT_NEEDED
    assert cluster.set_isr((2,)).error == 0
    cluster.fence(2)
    assert cluster.led() == (NO_LEADER, (), (2,))
    assert elect(cluster, ElectionType.UNCLEAN) is ErrorCode.NONE
    assert cluster.led() == (1, (1,), ())
    cluster.fence(3, 1)
    assert elect(cluster, ElectionType.UNCLEAN) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_what_is_unknown_is_said_so() -> None:
    cluster = displaced()
    assert elect(cluster, ElectionType.PREFERRED, "no") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(cluster, ElectionType.PREFERRED, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError, match="Unknown election type 7"):
        cluster.do(ElectLeaders(7, ()))


def test_a_broker_that_leads_too_little_of_its_own_gets_it_back() -> None:
    cluster = displaced()
    assert cluster.do(RestorePreferredLeaders(allowed_percent=100)) == 0
    assert cluster.partition().leader == 2
    assert cluster.do(RestorePreferredLeaders(allowed_percent=10)) == 1
    assert cluster.partition().leader == 1
    assert cluster.do(RestorePreferredLeaders(allowed_percent=0)) == 0


def test_at_most_so_many_move_at_once() -> None:
    cluster = displaced()
    for number in range(5):
        cluster.create(1, 2, topic=f"t{number}")
    cluster.fence(1)
    cluster.beat(1)
    for number in range(5):
        assert cluster.set_isr((2, 1), f"t{number}").error == 0
    assert cluster.do(RestorePreferredLeaders(limit=2)) == 2
    assert cluster.do(RestorePreferredLeaders(limit=2)) == 2


def test_it_is_sent_to_the_controller_and_back() -> None:
    cluster = displaced()
    command = ElectLeaders(ElectionType.PREFERRED, (("t", 0), ("no", 1)))
    assert decode_command(encode_command(command)) == command
    result = command.decide(cluster.image, uuid.uuid4).result
    decoded = decode_result(command, encode_result(result))
    assert decoded[0] == result[0]
    assert decoded[1].error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
