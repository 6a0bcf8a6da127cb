"""For how long a node may answer without asking, and for what."""

import pytest

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.peers.lease import Lease
from millstream.cluster.replication import LeaderState
from millstream.protocol.errors import ErrorCode, KafkaError
from support.logs import TOPIC_ID, new_log

SESSION = 10.0


class Node:
    """What a lease goes by."""

    def __init__(self) -> None:
        self.now = 100.0
        self.applied = 5
        self.is_only_voter = False
        self.lease = Lease(SESSION, lambda: self.now, lambda: self.applied, lambda: self.is_only_voter)


@pytest.fixture
def node() -> Node:
    return Node()


def test_it_is_shorter_than_the_session_and_counts_from_when_it_was_asked_for(node: Node) -> None:
    assert not node.lease.is_valid
    sent_at = node.now
    node.now += 3.0
    node.lease.renew(sent_at, 5)
    node.now = sent_at + 7.9
    assert node.lease.is_valid
    node.now = sent_at + 8.0
    assert not node.lease.is_valid, "though the answer came 5 s ago"


def test_an_answer_to_a_question_from_before_a_pause_gives_none(node: Node) -> None:
    sent_at = node.now
    node.now += 30.0
    node.lease.renew(sent_at, 5)
    assert not node.lease.is_valid


def test_it_counts_once_the_metadata_are_as_new_as_the_controllers(node: Node) -> None:
    node.lease.renew(node.now, 7)
    assert not node.lease.is_valid
    node.applied = 7
    assert node.lease.is_valid


def test_until_then_the_one_before_counts_for_its_own_time(node: Node) -> None:
    node.lease.renew(node.now, 5)
    node.now += 4.0
    node.lease.renew(node.now, 9)
    assert node.lease.is_valid
    node.now += 4.0
    assert not node.lease.is_valid, "a node that cannot write its metadata does not get there"
    node.applied = 9
    assert node.lease.is_valid


def test_a_node_that_is_always_a_little_behind_has_one() -> None:
    node = Node()
    for beat in range(10):
        node.lease.renew(node.now, node.applied + 2)
        assert node.lease.is_valid or beat < 2
        node.applied += 1
        node.now += 1.0


def test_it_is_given_up_at_once_with_what_was_on_its_way(node: Node) -> None:
    node.lease.renew(node.now, 5)
    node.lease.renew(node.now, 9)
    node.lease.give_up()
    node.applied = 9
    assert not node.lease.is_valid


def test_the_last_one_alive_keeps_it_but_does_not_get_it_back(node: Node) -> None:
    node.lease.renew(node.now, 5)
    for _ in range(10):
        node.now += 4.0
        node.lease.prolong(node.now - 1.0)
        assert node.lease.is_valid
    node.now += 20.0
    node.lease.prolong(node.now)
    assert not node.lease.is_valid, "others may have been there meanwhile"


def test_an_only_voter_needs_none(node: Node) -> None:
    node.is_only_voter = True
    assert node.lease.is_valid


def partitions_with(state: LeaderState | None) -> Partitions:
    class NoFlushes:
        def flush_soon(self, partition: Partition) -> None: ...

    partition = Partition("t", 0, TOPIC_ID, new_log(), 0, NoFlushes(), is_leader=False)
    partition.lead(4, state)
    partitions = Partitions()
    partitions.add(partition)
    return partitions


def leader(*, removing: tuple[int, ...] = ()) -> LeaderState:
    members = (1, 2, 3)
    return LeaderState(1, 4, 0, 0, 0.0, replicas=members, isr=members, partition_epoch=0, removing=removing)


def test_reads_need_a_lease_and_writes_do_not() -> None:
    partitions = partitions_with(leader())
    partition = partitions.find_for_client("t", 0)
    partitions.has_lease = lambda: False
    with pytest.raises(KafkaError) as refused:
        partitions.find_for_client("t", 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partitions.find("t", 0) is partition
    assert not partitions.is_withheld(partition)


def test_what_no_other_node_keeps_is_read_without() -> None:
    partitions = partitions_with(None)
    partitions.has_lease = lambda: False
    assert partitions.find_for_client("t", 0).index == 0


def test_a_leader_that_asks_to_be_replaced_answers_no_reads_meanwhile() -> None:
    state = leader(removing=(1,))
    partitions = partitions_with(state)
    partitions.find_for_client("t", 0)
    change = state.propose()
    with pytest.raises(KafkaError):
        partitions.find_for_client("t", 0)
    state.clear_pending(change)
    partitions.find_for_client("t", 0)
