"""Share sessions and how many partitions they may have, which each of their fetches looks at."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
import pytest

from millstream.broker.shares.session_work import SessionWork
from millstream.broker.shares.sessions import MOST_OF_ALL, MOST_OF_ONE, OPEN, ShareSession, ShareSessions
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.share_acknowledge import AckPartition, AckTopic

TOPIC = UUID(int=1)


class Connection(msgspec.Struct):
    closed: bool = False


def topics(*indexes: int) -> list[AckTopic]:
    return [AckTopic(TOPIC, [AckPartition(index, ()) for index in indexes])]


def opened(sessions: ShareSessions, member: str, indexes: Sequence[int]) -> ShareSession:
    session = sessions.use("g", member, OPEN, Connection(), topics(*indexes))
    for index in indexes:
        session.add((TOPIC, index))
    return session


def test_a_session_has_so_many_partitions_and_not_one_more() -> None:
    sessions = ShareSessions(2000)
    session = opened(sessions, "m", range(MOST_OF_ONE))
    assert sessions.use("g", "m", 1, session.source, topics(*range(MOST_OF_ONE))) is session
    with pytest.raises(KafkaError) as refused:
        sessions.use("g", "m", 2, session.source, topics(MOST_OF_ONE))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert session.epoch == 2, "what is refused does not use up an epoch"
    with pytest.raises(KafkaError):
        sessions.use("g", "other", OPEN, Connection(), topics(*range(MOST_OF_ONE + 1)))
    assert sessions.find("g", "other") is None


def test_all_sessions_have_so_many_partitions_together() -> None:
    sessions = ShareSessions(2000)
    for number in range(MOST_OF_ALL // MOST_OF_ONE):
        opened(sessions, f"m{number}", range(MOST_OF_ONE))
    opened(sessions, "none", ())
    with pytest.raises(KafkaError) as refused:
        sessions.use("g", "one", OPEN, Connection(), topics(1))
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.partitions == MOST_OF_ALL
    sessions.use("g", "m0", -1, Connection())
    assert opened(sessions, "one", [1]).places == {(TOPIC, 1): None}


def test_a_partition_that_is_acknowledged_a_last_time_and_forgotten_leaves_the_session() -> None:
    """Its messages would have been given to a consumer that wants none of it any more."""
    session = opened(ShareSessions(1), "m", [0, 1])
    session.update(topics(1, 2), [(TOPIC, [1, 7])])
    assert list(session.places) == [(TOPIC, 0), (TOPIC, 2)]


def test_epochs_of_a_session_follow_each_other_and_begin_again_at_one() -> None:
    sessions = ShareSessions(1)
    session = opened(sessions, "m", [0])
    for epoch in (1, 2, 3):
        assert sessions.use("g", "m", epoch, session.source) is session
    for wrong in (3, 5, 2**31 - 1):
        with pytest.raises(KafkaError) as refused:
            sessions.use("g", "m", wrong, session.source)
        assert refused.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = 2**31 - 1
    sessions.use("g", "m", 2**31 - 1, session.source)
    assert session.epoch == 1
    sessions.use("g", "m", -1, session.source)
    with pytest.raises(KafkaError) as refused:
        sessions.use("g", "m", 1, session.source)
    assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_members_name_is_short() -> None:
    """Each session keeps it: 2,000 with names of 4 MB were 8 GB."""
    sessions = ShareSessions(10)
    opened(sessions, "m" * 255, [0])
    with pytest.raises(KafkaError) as refused:
        opened(sessions, "m" * 256, [0])
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_a_connection_that_ends_with_very_many_sessions_has_a_few_of_them_ended_in_a_turn() -> None:
    """The end of each looks at all queues: 2,000 sessions and 20,000 queues held the node up for seconds."""
    released: list[str] = []

    class Queues:
        def release_member(self, _group_id: str, member: str) -> list[object]:
            released.append(member)
            return []

    async def scenario() -> None:
        nothing: Any = None
        shares: Any = Queues()
        sessions = ShareSessions(100)
        work = SessionWork(shares, sessions, nothing, nothing, nothing, nothing)
        connection = Connection()
        for number in range(100):
            work.use("g", f"m{number}", OPEN, connection, topics(0))
        connection.closed = True
        turns = []
        work._sweep()
        while len(released) < 100:
            turns.append(len(released))
            await asyncio.sleep(0)
        assert max(after - before for before, after in pairwise([0, *turns, 100])) <= 5
        assert not len(sessions)
        work.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
