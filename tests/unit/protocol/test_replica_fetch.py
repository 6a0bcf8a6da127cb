"""Fetch between nodes: what one side writes the other reads."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import FetchedPartition, FetchPartition, decode_fetch, encode_fetch_reply
from millstream.protocol.replica_fetch import VERSION, ReplicaFetchRequest, decode_reply, encode_body

IDS = st.binary(min_size=16, max_size=16)
INTS = st.integers(0, 2**31 - 1)
LONGS = st.integers(-1, 2**63 - 1)
_HEADER_BYTES = 11


@given(
    st.dictionaries(
        st.tuples(IDS, st.integers(0, 5)),
        st.tuples(INTS, LONGS, INTS, LONGS, INTS, st.booleans()),
        max_size=5,
    ),
    st.lists(st.tuples(IDS, INTS), max_size=3, unique=True),
    INTS,
    LONGS,
)
def test_requests(
    wanted: dict[tuple[bytes, int], tuple[int, int, int, int, int, bool]],
    forgotten: list[tuple[bytes, int]],
    replica: int,
    epoch: int,
) -> None:
    partitions = {key: FetchPartition(key[1], *fields) for key, fields in wanted.items()}
    request = ReplicaFetchRequest(replica, epoch, 3, 4, 500, 1 << 20, partitions, tuple(forgotten), "rack")
    data = memoryview(encode_body(request))
    decoded = decode_fetch(data, 0, VERSION)
    assert (decoded.replica_id, decoded.replica_epoch) == (replica, epoch)
    assert (decoded.session_id, decoded.session_epoch, decoded.rack_id) == (3, 4, "rack")
    assert {
        (topic, each.partition): each for topic, each_of in decoded.topics for each in each_of
    } == partitions
    assert {(topic, index) for topic, indexes in decoded.forgotten for index in indexes} == set(forgotten)


@given(
    st.lists(
        st.builds(
            FetchedPartition,
            IDS,
            st.integers(0, 5),
            st.sampled_from([ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH]),
            LONGS,
            LONGS,
            LONGS,
            st.binary(max_size=50),
            st.none() | st.tuples(INTS, LONGS),
            st.just(-1) | INTS,
        ),
        max_size=4,
    )
)
def test_replies(partitions: list[FetchedPartition]) -> None:
    body = b"\0" + b"".join(encode_fetch_reply(VERSION, partitions, session_id=77))
    reply = decode_reply(memoryview(body))
    assert (reply.error, reply.session_id) == (ErrorCode.NONE, 77)
    assert reply.partitions == partitions
