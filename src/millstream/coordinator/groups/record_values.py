"""Values of offsets and classic groups in `__consumer_offsets`, in Kafka's formats."""

from millstream.coordinator.groups.records import CommittedOffset, StoredClassicGroup, StoredMember
from millstream.coordinator.wire import Reader, Writer

_FIRST_FLEXIBLE_VERSION = 4


def encode_offset(value: CommittedOffset) -> bytes:
    """Version 3; version 1 where a client asked for its own expiry time, which only that one can say."""
    writer = Writer()
    own_expiry = value.expire_ms >= 0
    writer.int16(1 if own_expiry else 3)
    writer.int64(value.offset)
    if not own_expiry:
        writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_ms)
    if own_expiry:
        writer.int64(value.expire_ms)
    return writer.finish()


def decode_offset(data: bytes) -> CommittedOffset:
    reader = Reader(data)
    version = _read_version(reader)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == 1 else -1
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms)


def encode_classic_group(value: StoredClassicGroup) -> bytes:
    writer = Writer()

    def write_member(member: StoredMember) -> None:
        writer.string(member.member_id)
        writer.string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.data(member.subscription)
        writer.data(member.assignment)

    writer.int16(3)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    writer.int64(value.state_ms)
    writer.array(value.members, write_member)
    return writer.finish()


def decode_classic_group(data: bytes) -> StoredClassicGroup:
    reader = Reader(data)
    version = _read_version(reader)

    def read_member() -> StoredMember:
        member_id = reader.string()
        instance_id = reader.nullable_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.int32() if version >= 1 else -1
        session_timeout_ms = reader.int32()
        subscription, assignment = reader.data(), reader.data()
        reader.tags()
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = session_timeout_ms
        return StoredMember(
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        )

    protocol_type = reader.string()
    generation = reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    state_ms = reader.int64() if version >= 2 else -1
    members = tuple(reader.array(read_member))
    return StoredClassicGroup(protocol_type, generation, protocol, leader, state_ms, members)


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version >= _FIRST_FLEXIBLE_VERSION:
        reader.make_flexible()
    return version
