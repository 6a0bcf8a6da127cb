from uuid import UUID

import pytest

from millstream.cluster.raft import messages as m
from millstream.cluster.raft.codec import BadMessage, decode_message, encode_message
from millstream.cluster.raft.entries import Entry, EntryKind, Snapshot
from millstream.cluster.raft.membership import MemberKey, Membership

ONE, TWO = MemberKey(1, UUID(int=1)), MemberKey(2, UUID(int=2))
MESSAGES: list[m.Message] = [
    m.PreVoteRequest(ONE, TWO, 3, 4, 2),
    m.PreVoteReply(ONE, TWO, 3, True),
    m.VoteRequest(ONE, TWO, 3, 4, 2, True),
    m.VoteReply(ONE, TWO, 3, False),
    m.AppendRequest(
        ONE, TWO, 3, 4, 2, (Entry(5, 3, EntryKind.DATA, b"\x00\xff"), Entry(6, 3, EntryKind.NOOP)), 4
    ),
    m.AppendReply(ONE, TWO, 3, 6),
    m.AppendRejected(ONE, TWO, 3, 6, 4, 2),
    m.Heartbeat(ONE, TWO, 3, 4, 9),
    m.HeartbeatReply(ONE, TWO, 3, 9),
    m.InstallSnapshot(ONE, TWO, 3, Snapshot(4, 2, Membership((ONE,), (TWO,)), b"state")),
    m.TimeoutNow(ONE, TWO, 3),
    m.ReadRequest(ONE, TWO, 3, UUID(int=7)),
    m.ReadReply(ONE, TWO, 3, UUID(int=7), 6),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_wire(message: m.Message) -> None:
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff", b"\x01", b"\x05\x80", b"\x03\xc1"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_message(data)
