"""What one side of Produce writes, the other reads, in every version."""

import pytest

from millstream.protocol.errors import ErrorCode, RecordError
from millstream.protocol.produce import TOPIC_ID_FROM, PartitionOutcome, decode_produce, encode_produce_reply
from millstream.protocol.produce_forward import Batch, decode_produce_reply, encode_produce_request

VERSIONS = range(3, 14)


def topics(version: int) -> tuple[str | bytes, str | bytes]:
    return (b"a" * 16, b"b" * 16) if version >= TOPIC_ID_FROM else ("a", "b")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_read_as_it_was_meant(version: int) -> None:
    one, other = topics(version)
    batches = [
        Batch(one, 3, memoryview(b"x" * 200)),
        Batch(one, 0, None),
        Batch(other, 7, memoryview(b"")),
    ]
    body = b"".join(encode_produce_request(version, "t", -1, 1500, batches))
    read = decode_produce(memoryview(body), 0, version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == ("t", -1, 1500)
    assert [
        (topic, index, None if records is None else bytes(records))
        for topic, partitions in read.topics
        for index, records in partitions
    ] == [(one, 3, b"x" * 200), (one, 0, None), (other, 7, b"")]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_is_read_as_it_was_meant(version: int) -> None:
    one, other = topics(version)
    outcomes = [
        PartitionOutcome(one, 3, base_offset=17, log_append_time_ms=5, log_start_offset=2),
        PartitionOutcome(
            one,
            4,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "who?" if version >= 8 else None,
            leader_id=2,
            leader_epoch=9,
        ),
        PartitionOutcome(other, 0, base_offset=1),
    ]
    if version >= 8:
        outcomes[1].record_errors = (RecordError(0, "why"), RecordError(300, None))
    read = decode_produce_reply(memoryview(encode_produce_reply(version, outcomes)), version)
    # Who leads is not told: whoever forwards answers for it.
    outcomes[1].leader_id = outcomes[1].leader_epoch = -1
    if version < 5:
        outcomes[0].log_start_offset = -1
    assert read == outcomes
