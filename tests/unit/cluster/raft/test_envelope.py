"""Messages on a connection: in parts, checked, and never from another cluster."""

from uuid import UUID

import pytest

from millstream.cluster.raft.codec import BadMessage
from millstream.cluster.raft.entries import Snapshot
from millstream.cluster.raft.envelope import PART_BYTES, Assembler, WrongCluster, encode_parts
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import Heartbeat, InstallSnapshot

ONE, TWO = MemberKey(1, UUID(int=1)), MemberKey(2, UUID(int=2))
CLUSTER, OTHER = "c" * 22, "o" * 22
HEARTBEAT = Heartbeat(ONE, TWO, 3, 4, 5)
LONG = InstallSnapshot(ONE, TWO, 3, Snapshot(9, 3, data=b"x" * (2 * PART_BYTES)))


def test_a_short_message_is_one_part() -> None:
    (part,) = encode_parts(CLUSTER, 1, HEARTBEAT)
    assert Assembler().add(part, CLUSTER) == (CLUSTER, HEARTBEAT)


def test_a_long_message_comes_in_parts_and_others_between_them() -> None:
    first, *rest = encode_parts(CLUSTER, 1, LONG)
    assert len(rest) == 2
    (other,) = encode_parts(CLUSTER, 2, HEARTBEAT)
    assembler = Assembler()
    assert assembler.add(first, CLUSTER) is None
    assert assembler.add(other, CLUSTER) == (CLUSTER, HEARTBEAT)
    assert [assembler.add(part, CLUSTER) for part in rest] == [None, (CLUSTER, LONG)]


def test_numbers_begin_again_after_four_bytes_of_them() -> None:
    assembler = Assembler()
    for number in range(2**32 - 1, 2**32 + 2):
        *parts, last = encode_parts(CLUSTER, number, LONG)
        assert [assembler.add(part, CLUSTER) for part in parts] == [None, None]
        assert assembler.add(last, CLUSTER) == (CLUSTER, LONG)


def test_any_flipped_bit_is_noticed() -> None:
    (part,) = encode_parts(CLUSTER, 1, HEARTBEAT)
    for position in range(len(part)):
        damaged = bytearray(part)
        damaged[position] ^= 1
        with pytest.raises(BadMessage, match="checksum"):
            Assembler().add(bytes(damaged), CLUSTER)


def test_another_clusters_message_is_refused_by_who_knows_its_own() -> None:
    (part,) = encode_parts(OTHER, 1, HEARTBEAT)
    with pytest.raises(WrongCluster, match=OTHER):
        Assembler().add(part, CLUSTER)
    assert Assembler().add(part, "") == (OTHER, HEARTBEAT)


def test_a_missing_part_is_noticed() -> None:
    first, _, last = encode_parts(CLUSTER, 1, LONG)
    assembler = Assembler()
    assembler.add(first, CLUSTER)
    with pytest.raises(BadMessage, match="part 2 of 3"):
        assembler.add(last, CLUSTER)


def test_beginnings_without_an_end_are_bounded() -> None:
    assembler = Assembler()
    for number in range(4):
        assembler.add(next(encode_parts(CLUSTER, number, LONG)), CLUSTER)
    with pytest.raises(BadMessage, match="too much"):
        assembler.add(next(encode_parts(CLUSTER, 4, LONG)), CLUSTER)


@pytest.mark.parametrize("data", [b"", b"x" * 20, b"x" * 100])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        Assembler().add(data, CLUSTER)
