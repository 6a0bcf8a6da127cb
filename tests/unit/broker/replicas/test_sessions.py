"""What a leader remembers of what it told a follower: a follower's own word counts for more."""

from millstream.broker.replicas.sessions import ReplicaSession
from millstream.protocol.fetch import FetchedPartition, FetchPartition

KEY = b"t" * 16, 0
HIGH_WATERMARK, START = 9, 4


def asked(session: ReplicaSession, *, epoch: int = 1, log_start: int = 0) -> bool:
    """The follower asks for the partition; whether there is something that it has to be told."""
    wanted = session.want(KEY, FetchPartition(0, epoch, HIGH_WATERMARK, -1, log_start, 1000))
    found = FetchedPartition(*KEY)
    found.high_watermark, found.log_start_offset = HIGH_WATERMARK, START
    differs = wanted.differs(found)
    wanted.note_sent(found)
    return differs


def test_a_follower_that_begins_before_the_leader_is_told_again() -> None:
    session = ReplicaSession(1, 2, 3)
    assert asked(session)
    assert asked(session), "it was told, and its log begins where it began"
    assert not asked(session, log_start=START)


def test_a_follower_of_another_epoch_may_have_heard_nothing() -> None:
    session = ReplicaSession(1, 2, 3)
    assert asked(session, log_start=START)
    assert not asked(session, log_start=START)
    assert asked(session, log_start=START, epoch=2), (
        "it throws replies away that are older than its leader's epoch"
    )
