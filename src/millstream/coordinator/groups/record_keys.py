"""Keys of `__consumer_offsets`: a 16-bit kind, then plain strings; the kinds are Kafka's."""

from typing import Final

from millstream.coordinator.groups.records import (
    ClassicGroupKey,
    ConsumerGroupKey,
    CurrentKey,
    Key,
    MemberKey,
    OffsetKey,
    RegexKey,
    TargetEpochKey,
    TargetKey,
)
from millstream.coordinator.wire import Reader, WireError, Writer

# Kinds 0 and 1 are two versions of the offset's key with the same fields.
_KIND_OF: Final = {
    OffsetKey: 1,
    ClassicGroupKey: 2,
    ConsumerGroupKey: 3,
    MemberKey: 5,
    TargetEpochKey: 6,
    TargetKey: 7,
    CurrentKey: 8,
    RegexKey: 16,
}


def encode_key(key: Key) -> bytes:
    writer = Writer()
    writer.int16(_KIND_OF[type(key)])
    writer.string(key.group_id)
    if isinstance(key, OffsetKey):
        writer.string(key.topic)
        writer.int32(key.partition)
    elif isinstance(key, MemberKey | TargetKey | CurrentKey):
        writer.string(key.member_id)
    elif isinstance(key, RegexKey):
        writer.string(key.regex)
    return writer.finish()


def decode_key(data: bytes) -> Key | None:
    """None for a kind that this version does not know."""
    reader = Reader(data)
    kind = reader.int16()
    if kind < 0:
        raise WireError(f"a key of kind {kind}")
    if kind <= 1:
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if kind == 2:
        return ClassicGroupKey(reader.string())
    if kind == 3:
        return ConsumerGroupKey(reader.string())
    if kind == 5:
        return MemberKey(reader.string(), reader.string())
    if kind == 6:
        return TargetEpochKey(reader.string())
    if kind == 7:
        return TargetKey(reader.string(), reader.string())
    if kind == 8:
        return CurrentKey(reader.string(), reader.string())
    return RegexKey(reader.string(), reader.string()) if kind == 16 else None
