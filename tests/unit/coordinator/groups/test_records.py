"""The bytes of `__consumer_offsets`."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.groups import records as r
from millstream.coordinator.groups.records import decode_record, encode_record
from millstream.protocol.wire import MalformedRequest

names = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
epochs = st.integers(-2, 2**31 - 1)
partition_sets = st.dictionaries(
    st.uuids(), st.frozensets(st.integers(0, 1000), min_size=1, max_size=5), max_size=3
)
protocols = st.lists(st.tuples(names, st.binary(max_size=20)), max_size=3).map(tuple)

records = st.one_of(
    st.builds(
        r.GroupRecord,
        st.builds(r.OffsetKey, names, names, int32),
        st.builds(r.CommittedOffset, int64, int32, names, int64),
    ),
    st.builds(
        r.GroupRecord,
        st.builds(r.ClassicGroupKey, names),
        st.builds(
            r.StoredClassicGroup,
            names,
            int32,
            st.none() | names,
            st.none() | names,
            int64,
            st.lists(
                st.builds(
                    r.StoredMember,
                    names,
                    st.none() | names,
                    names,
                    names,
                    st.integers(0, 2**31 - 1),
                    int32,
                    st.binary(max_size=20),
                    st.binary(max_size=20),
                ),
                max_size=3,
            ).map(tuple),
        ),
    ),
    st.builds(
        r.GroupRecord, st.builds(r.ConsumerGroupKey, names), st.builds(r.ConsumerGroupEpoch, int32, int64)
    ),
    st.builds(
        r.GroupRecord,
        st.builds(r.MemberKey, names, names),
        st.builds(
            r.MemberSubscription,
            st.none() | names,
            st.none() | names,
            names,
            names,
            st.frozensets(names, max_size=3),
            st.none() | names,
            int32,
            st.none() | names,
            st.none() | st.builds(r.ClassicProtocols, int32, protocols),
        ),
    ),
    st.builds(r.GroupRecord, st.builds(r.TargetEpochKey, names), st.builds(r.TargetEpoch, int32)),
    st.builds(r.GroupRecord, st.builds(r.TargetKey, names, names), st.builds(r.Target, partition_sets)),
    st.builds(
        r.GroupRecord,
        st.builds(r.CurrentKey, names, names),
        st.builds(r.Current, epochs, epochs, st.sampled_from(r.MemberState), partition_sets, partition_sets),
    ),
    st.builds(
        r.GroupRecord,
        st.builds(r.RegexKey, names, names),
        st.builds(r.ResolvedRegex, st.frozensets(names, max_size=3), int64, int64),
    ),
)


@given(records)
def test_every_record_reads_back_as_it_was_written(record: r.GroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@given(records)
def test_a_tombstone_has_a_key_and_no_value(record: r.GroupRecord) -> None:
    key, value = encode_record(r.GroupRecord(record.key, None))
    assert value is None
    assert decode_record(key, None) == r.GroupRecord(record.key, None)


@given(records, st.data())
def test_damaged_records_raise_one_kind_of_error(record: r.GroupRecord, data: st.DataObject) -> None:
    key, value = encode_record(record)
    assert value is not None
    cut = data.draw(st.integers(0, len(value) - 1))
    with suppress(MalformedRequest):
        decode_record(key, value[:cut])


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    record = r.GroupRecord(r.OffsetKey("g", "topic", 3), r.CommittedOffset(42, 7, "meta", 1_000))
    key, value = encode_record(record)
    assert key == bytes.fromhex("0001 0001 67 0005 746f706963 00000003")
    assert value == bytes.fromhex("0003 000000000000002a 00000007 0004 6d657461 00000000000003e8")


def test_an_offset_with_its_own_expiry_is_written_in_version_1() -> None:
    record = r.GroupRecord(r.OffsetKey("g", "t", 0), r.CommittedOffset(1, -1, "", 10, 20))
    _, value = encode_record(record)
    assert value == bytes.fromhex("0001 0000000000000001 0000 000000000000000a 0000000000000014")
    assert decode_record(*encode_record(record)) == record


def test_offsets_of_all_older_versions_are_read() -> None:
    key, _ = encode_record(r.GroupRecord(r.OffsetKey("g", "t", 0), None))
    version_0 = bytes.fromhex("0000 0000000000000005 0000 0000000000000064")
    version_2 = bytes.fromhex("0002 0000000000000005 0000 0000000000000064")
    version_4 = bytes.fromhex("0004 0000000000000005 00000002 01 0000000000000064 00")
    plain = r.CommittedOffset(5, -1, "", 100)
    assert [decode_record(key, version_0), decode_record(key, version_2)] == [
        r.GroupRecord(r.OffsetKey("g", "t", 0), plain)
    ] * 2
    assert decode_record(key, version_4) == r.GroupRecord(
        r.OffsetKey("g", "t", 0), r.CommittedOffset(5, 2, "", 100)
    )


def test_a_current_assignment_is_written_with_compact_fields() -> None:
    record = r.GroupRecord(
        r.CurrentKey("g", "m"), r.Current(5, 4, r.MemberState.STABLE, {UUID(int=1): frozenset({0, 1})}, {})
    )
    key, value = encode_record(record)
    assert key == bytes.fromhex("0008 0001 67 0001 6d")
    topic = "00000000000000000000000000000001 03 00000000 00000001 00"
    assert value == bytes.fromhex(f"0000 00000005 00000004 00 02 {topic} 01 00")


def test_topics_of_a_share_group_are_written_as_kafka_has_them() -> None:
    topics = r.ShareTopics((), {UUID(int=1): r.ShareTopic("t", frozenset({0, 1}))})
    key, value = encode_record(r.GroupRecord(r.ShareTopicsKey("g"), topics))
    assert key == bytes.fromhex("000f 0001 67")
    topic = "00000000000000000000000000000001 02 74 03 00000000 00000001 00"
    assert value == bytes.fromhex(f"0000 01 02 {topic} 01 00")


def test_a_kind_of_record_from_a_newer_version_is_skipped() -> None:
    assert decode_record(bytes.fromhex("0063 0001 67"), b"\x00\x00whatever") is None


def test_a_key_that_is_no_key_is_an_error() -> None:
    with pytest.raises(MalformedRequest):
        decode_record(b"\xff\xff", b"")
