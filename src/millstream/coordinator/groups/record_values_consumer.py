"""Values of KIP-848 groups in `__consumer_offsets`: all version 0, all with compact fields and tags."""

from typing import Final
from uuid import UUID

from millstream.coordinator.groups.records import (
    ClassicProtocols,
    ConsumerGroupEpoch,
    Current,
    MemberState,
    MemberSubscription,
    PartitionSet,
    ResolvedRegex,
    Target,
    TargetEpoch,
)
from millstream.coordinator.wire import Reader, Writer

_METADATA_HASH_TAG: Final = 0
_CLASSIC_METADATA_TAG: Final = 0


def encode_group_epoch(value: ConsumerGroupEpoch) -> bytes:
    writer = _writer()
    writer.int32(value.epoch)
    hash_bytes = value.metadata_hash.to_bytes(8, "big", signed=True)
    writer.tags([(_METADATA_HASH_TAG, hash_bytes)] if value.metadata_hash else ())
    return writer.finish()


def decode_group_epoch(data: bytes) -> ConsumerGroupEpoch:
    reader = _reader(data)
    epoch = reader.int32()
    hash_bytes = reader.tags().get(_METADATA_HASH_TAG, b"")
    return ConsumerGroupEpoch(epoch, int.from_bytes(hash_bytes, "big", signed=True))


def encode_member(value: MemberSubscription) -> bytes:
    writer = _writer()
    writer.string(value.instance_id)
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.array(sorted(value.topic_names), writer.string)
    writer.string(value.topic_regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.string(value.server_assignor)
    writer.tags([(_CLASSIC_METADATA_TAG, _encode_classic(value.classic))] if value.classic else ())
    return writer.finish()


def decode_member(data: bytes) -> MemberSubscription:
    reader = _reader(data)
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topic_names = frozenset(reader.array(reader.string))
    topic_regex = reader.nullable_string()
    rebalance_timeout_ms = reader.int32()
    server_assignor = reader.nullable_string()
    classic = reader.tags().get(_CLASSIC_METADATA_TAG)
    return MemberSubscription(
        instance_id,
        rack_id,
        client_id,
        client_host,
        topic_names,
        topic_regex,
        rebalance_timeout_ms,
        server_assignor,
        _decode_classic(classic) if classic else None,
    )


def encode_target_epoch(value: TargetEpoch) -> bytes:
    writer = _writer()
    writer.int32(value.epoch)
    writer.tags()
    return writer.finish()


def decode_target_epoch(data: bytes) -> TargetEpoch:
    return TargetEpoch(_reader(data).int32())


def encode_target(value: Target) -> bytes:
    writer = _writer()
    _write_partitions(writer, value.partitions)
    writer.tags()
    return writer.finish()


def decode_target(data: bytes) -> Target:
    return Target(_read_partitions(_reader(data)))


def encode_current(value: Current) -> bytes:
    writer = _writer()
    writer.int32(value.member_epoch)
    writer.int32(value.previous_epoch)
    writer.int8(value.state)
    _write_partitions(writer, value.assigned)
    _write_partitions(writer, value.revoking)
    writer.tags()
    return writer.finish()


def decode_current(data: bytes) -> Current:
    reader = _reader(data)
    member_epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    known = MemberState(state) if state in MemberState.__members__.values() else MemberState.UNKNOWN
    return Current(member_epoch, previous_epoch, known, _read_partitions(reader), _read_partitions(reader))


def encode_regex(value: ResolvedRegex) -> bytes:
    writer = _writer()
    writer.array(sorted(value.topics), writer.string)
    writer.int64(value.version)
    writer.int64(value.resolved_ms)
    writer.tags()
    return writer.finish()


def decode_regex(data: bytes) -> ResolvedRegex:
    reader = _reader(data)
    return ResolvedRegex(frozenset(reader.array(reader.string)), reader.int64(), reader.int64())


def _writer() -> Writer:
    writer = Writer(flexible=True)
    writer.int16(0)
    return writer


def _reader(data: bytes) -> Reader:
    # Later versions may only add tagged fields (KIP-915), so the version itself decides nothing.
    return Reader(data, flexible=True, position=2)


def _write_partitions(writer: Writer, partitions: PartitionSet) -> None:
    def write_topic(topic_id: UUID) -> None:
        writer.uuid(topic_id)
        writer.array(sorted(partitions[topic_id]), writer.int32)
        writer.tags()

    writer.array(sorted(partitions), write_topic)


def _read_partitions(reader: Reader) -> PartitionSet:
    def read_topic() -> tuple[UUID, frozenset[int]]:
        topic_id, indexes = reader.uuid(), frozenset(reader.array(reader.int32))
        reader.tags()
        return topic_id, indexes

    return dict(reader.array(read_topic))


def _encode_classic(value: ClassicProtocols) -> bytes:
    writer = Writer(flexible=True)

    def write_protocol(protocol: tuple[str, bytes]) -> None:
        writer.string(protocol[0])
        writer.data(protocol[1])
        writer.tags()

    # A nullable structure starts with a byte that says it is there.
    writer.int8(1)
    writer.int32(value.session_timeout_ms)
    writer.array(value.protocols, write_protocol)
    writer.tags()
    return writer.finish()


def _decode_classic(data: bytes) -> ClassicProtocols | None:
    reader = Reader(data, flexible=True)
    if reader.int8() < 0:
        return None

    def read_protocol() -> tuple[str, bytes]:
        protocol = reader.string(), reader.data()
        reader.tags()
        return protocol

    return ClassicProtocols(reader.int32(), tuple(reader.array(read_protocol)))
