"""Who may speak to whom."""

from uuid import UUID

import pytest

from millstream.broker.peers.hello import Hello, answer, decode_hello, decode_welcome, encode
from millstream.cluster.raft.membership import MemberKey
from millstream.protocol.wire import MalformedRequest

ONE, TWO = MemberKey(1, UUID(int=1)), MemberKey(2, UUID(int=2))
SEEDS = ("a:1", "b:1")
CLUSTER, OTHER = "c" * 22, "o" * 22
ME = Hello(CLUSTER, ONE, SEEDS)


def test_a_member_and_a_newcomer_are_welcome() -> None:
    for caller in (Hello(CLUSTER, TWO, SEEDS), Hello("", MemberKey(3, UUID(int=3)), SEEDS)):
        welcome = answer(ME, (ONE, TWO), caller)
        assert (welcome.refusal, welcome.member, welcome.members) == (None, ONE, (ONE, TWO))


def test_a_node_that_calls_itself_is_told_its_own_name() -> None:
    assert answer(ME, (ONE,), ME).member == ONE
    assert answer(ME, (ONE,), ME).refusal is None


def test_a_node_that_came_back_with_an_empty_disk_does_not_refuse_itself() -> None:
    """Its log of the quorum was of before its removal so far: it ended at each start, and never learned the rest."""
    assert answer(ME, (MemberKey(1, UUID(int=9)), TWO), ME).refusal is None


def test_a_second_node_of_the_same_id_is_refused() -> None:
    refusal = answer(ME, (ONE, TWO), Hello(CLUSTER, MemberKey(1, UUID(int=9)), SEEDS)).refusal
    assert refusal is not None
    assert "--node-id" in refusal


def test_a_node_of_another_cluster_is_refused() -> None:
    refusal = answer(ME, (ONE, TWO), Hello(OTHER, MemberKey(3, UUID(int=3)), SEEDS)).refusal
    assert refusal is not None
    assert CLUSTER in refusal
    assert OTHER in refusal


def test_a_member_with_another_directory_is_refused() -> None:
    refusal = answer(ME, (ONE, TWO), Hello("", MemberKey(2, UUID(int=9)), SEEDS)).refusal
    assert refusal is not None
    assert str(TWO.directory_id) in refusal
    assert "--force" in refusal


def test_who_takes_the_id_of_a_member_that_runs_is_not_told_to_give_that_one_up() -> None:
    refusal = answer(ME, (ONE, TWO), Hello("", MemberKey(2, UUID(int=9)), SEEDS), (), TWO.__eq__).refusal
    assert refusal is not None
    assert "another node has the id 2 already" in refusal
    assert "--force" not in refusal


def test_a_node_that_was_removed_is_refused_for_good() -> None:
    caller = Hello(CLUSTER, TWO, SEEDS)
    welcome = decode_welcome(encode(answer(ME, (ONE,), caller, {TWO.directory_id})))
    assert welcome.is_removed
    assert welcome.refusal is not None
    assert "was removed" in welcome.refusal
    assert not answer(ME, (ONE, TWO), Hello("", MemberKey(2, UUID(int=9)), SEEDS)).is_removed


def test_greetings_survive_the_wire() -> None:
    assert decode_hello(encode(ME)) == ME
    welcome = answer(ME, (ONE, TWO), Hello("", TWO, SEEDS))
    assert decode_welcome(encode(welcome)) == welcome


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x93\xa0\xa0\xa0"])
def test_other_bytes_are_no_greeting(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_hello(data)
