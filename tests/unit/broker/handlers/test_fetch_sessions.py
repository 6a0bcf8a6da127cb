import pytest

from millstream.broker.handlers.fetch_sessions import FetchSession, FetchSessions
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic


def request(
    session_id: int = 0,
    epoch: int = 0,
    partitions: tuple[int, ...] = (),
    forgotten: tuple[int, ...] = (),
    offset: int = 0,
) -> FetchRequest:
    wanted = [FetchPartition(index, -1, offset, -1, -1, 1000) for index in partitions]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic("t", wanted)] if wanted else [],
        forgotten=[("t", list(forgotten))] if forgotten else [],
        rack_id="",
    )


def opened(sessions: FetchSessions, *partitions: int, now: float = 0.0) -> FetchSession:
    session = sessions.open(request(partitions=partitions), by_topic_id=False, now=now)
    assert session is not None
    return session


def fetched(
    index: int, high_watermark: int = 5, records: bytes = b"", error: ErrorCode = ErrorCode.NONE
) -> FetchedPartition:
    return FetchedPartition(
        "t",
        index,
        error,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=0,
        records=records,
    )


def told(session: FetchSession, *partitions: FetchedPartition, full: bool = False) -> list[int]:
    return [each.index for each in session.changed(list(partitions), full=full)]


def test_the_first_answer_is_full_and_later_ones_tell_what_changed() -> None:
    session = opened(FetchSessions(), 0, 1)
    assert told(session, fetched(0), fetched(1), full=True) == [0, 1]
    assert told(session, fetched(0), fetched(1)) == []
    assert told(session, fetched(0), fetched(1, high_watermark=6)) == [1]
    assert told(session, fetched(0), fetched(1, high_watermark=6)) == []
    assert told(session, fetched(0, records=b"r"), fetched(1, high_watermark=6)) == [0]


def test_a_partition_that_joined_is_told_though_nothing_changed() -> None:
    sessions = FetchSessions()
    session = opened(sessions, 0)
    told(session, fetched(0), full=True)
    sessions.open(request(session.session_id, 1, partitions=(1,)), by_topic_id=False, now=1)
    assert told(session, fetched(0), fetched(1)) == [1]


def test_an_error_is_told_until_it_is_over_and_then_the_end_of_it() -> None:
    session = opened(FetchSessions(), 0)
    broken = fetched(0, error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert [told(session, broken, full=True), told(session, broken), told(session, fetched(0))] == [
        [0],
        [0],
        [0],
    ]
    assert told(session, fetched(0)) == []


def test_who_got_records_goes_to_the_end_of_the_line() -> None:
    session = opened(FetchSessions(), 0, 1, 2)
    told(session, fetched(0, records=b"r"), fetched(1), fetched(2), full=True)
    assert [partition.partition for _, partition in session.wanted()] == [1, 2, 0]


def test_a_partitions_new_position_replaces_the_old_one_in_place() -> None:
    sessions = FetchSessions()
    session = opened(sessions, 0, 1)
    sessions.open(request(session.session_id, 1, partitions=(0,), offset=7), by_topic_id=False, now=0)
    assert [(each.partition, each.fetch_offset) for _, each in session.wanted()] == [(0, 7), (1, 0)]


def test_epochs_count_from_one_and_after_the_last_from_one_again() -> None:
    sessions = FetchSessions()
    session = opened(sessions, 0)
    session.next_epoch = 2**31 - 1
    assert sessions.open(request(session.session_id, 2**31 - 1), by_topic_id=False, now=0) is session
    assert sessions.open(request(session.session_id, 1), by_topic_id=False, now=0) is session


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_topic_id", "code"),
    [
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    session_id: int, epoch: int, by_topic_id: bool, code: ErrorCode
) -> None:
    sessions = FetchSessions()
    session = opened(sessions, 0)
    wrong = request(session.session_id ^ session_id, epoch, forgotten=(0,))
    with pytest.raises(KafkaError) as caught:
        sessions.open(wrong, by_topic_id=by_topic_id, now=0)
    assert caught.value.code == code
    assert len(session.wanted()) == 1
    assert sessions.open(request(session.session_id, 1), by_topic_id=False, now=0) is session


def test_when_all_slots_are_in_use_no_session_is_opened() -> None:
    sessions = FetchSessions(slots=2)
    first, second = opened(sessions, 0), opened(sessions, 0)
    assert sessions.open(request(partitions=(0,)), by_topic_id=False, now=100) is None
    for session in (first, second):
        assert sessions.open(request(session.session_id, 1), by_topic_id=False, now=100) is session


def test_the_session_longest_unused_makes_room_after_two_minutes() -> None:
    sessions = FetchSessions(slots=2)
    first, second = opened(sessions, 0), opened(sessions, 0)
    sessions.open(request(first.session_id, 1), by_topic_id=False, now=100)
    third = sessions.open(request(partitions=(0,)), by_topic_id=False, now=121)
    assert third is not None
    assert len(sessions) == 2
    assert sessions.open(request(first.session_id, 2), by_topic_id=False, now=121) is first
    with pytest.raises(KafkaError):
        sessions.open(request(second.session_id, 1), by_topic_id=False, now=121)


def test_a_replaced_or_closed_session_frees_its_slot() -> None:
    sessions = FetchSessions(slots=1)
    session = opened(sessions, 0)
    replaced = sessions.open(request(session.session_id, 0, partitions=(0,)), by_topic_id=False, now=0)
    assert replaced is not None
    assert sessions.open(request(replaced.session_id, -1), by_topic_id=False, now=0) is None
    assert len(sessions) == 0
    opened(sessions, 0)


def test_a_request_without_a_session_opens_none() -> None:
    sessions = FetchSessions()
    assert sessions.open(request(epoch=-1, partitions=(0,)), by_topic_id=False, now=0) is None
    assert len(sessions) == 0


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessions(slots=4, most_partitions=8)
    opened(sessions, *range(6))
    assert sessions.partitions == 6
    six = request(partitions=tuple(range(6)))
    assert sessions.open(six, by_topic_id=False, now=1.0) is None, "no room, so no session"
    later = FetchSessions.EVICTABLE_AFTER_SECONDS + 2
    assert sessions.open(six, by_topic_id=False, now=later) is not None
    assert sessions.partitions == 6, "the unused one made room"


def test_a_session_does_not_grow_without_end() -> None:
    sessions = FetchSessions(slots=4, most_partitions=8)
    session = opened(sessions, 0)
    for epoch in range(1, 8):
        assert (
            sessions.open(request(session.session_id, epoch, (epoch,)), by_topic_id=False, now=1.0) is session
        )
    with pytest.raises(KafkaError) as refusal:
        sessions.open(request(session.session_id, 8, (8,)), by_topic_id=False, now=1.0)
    assert refusal.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions == 0
