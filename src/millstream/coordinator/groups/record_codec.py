"""Records of `__consumer_offsets` to bytes and back."""

from collections.abc import Callable
from typing import Any, Final

from millstream.coordinator.groups import record_values as classic
from millstream.coordinator.groups import record_values_consumer as consumer
from millstream.coordinator.groups.record_keys import decode_key, encode_key
from millstream.coordinator.groups.records import (
    ClassicGroupKey,
    CommittedOffset,
    ConsumerGroupEpoch,
    ConsumerGroupKey,
    Current,
    CurrentKey,
    GroupRecord,
    MemberKey,
    MemberSubscription,
    OffsetKey,
    RegexKey,
    ResolvedRegex,
    StoredClassicGroup,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
    Value,
)

_ENCODE: Final[dict[type, Callable[[Any], bytes]]] = {
    CommittedOffset: classic.encode_offset,
    StoredClassicGroup: classic.encode_classic_group,
    ConsumerGroupEpoch: consumer.encode_group_epoch,
    MemberSubscription: consumer.encode_member,
    TargetEpoch: consumer.encode_target_epoch,
    Target: consumer.encode_target,
    Current: consumer.encode_current,
    ResolvedRegex: consumer.encode_regex,
}

_DECODE: Final[dict[type, Callable[[bytes], Value]]] = {
    OffsetKey: classic.decode_offset,
    ClassicGroupKey: classic.decode_classic_group,
    ConsumerGroupKey: consumer.decode_group_epoch,
    MemberKey: consumer.decode_member,
    TargetEpochKey: consumer.decode_target_epoch,
    TargetKey: consumer.decode_target,
    CurrentKey: consumer.decode_current,
    RegexKey: consumer.decode_regex,
}


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    value = record.value
    return encode_key(record.key), None if value is None else _ENCODE[type(value)](value)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """None for a kind of record that only a newer version knows."""
    decoded = decode_key(key)
    if decoded is None:
        return None
    return GroupRecord(decoded, None if value is None else _DECODE[type(decoded)](value))
