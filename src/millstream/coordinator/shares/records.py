"""The records of `__share_group_state`: Kafka's two kinds, and their bytes.

A snapshot has the whole state of one group's queue on one partition, updates have later changes. Our own addition is a
tagged field with the time before which a stretch is not delivered again; Kafka's readers skip it.
"""

from base64 import urlsafe_b64encode
from typing import Annotated
from uuid import UUID

import msgspec

from millstream.coordinator.record_table import RecordKind, RecordTable
from millstream.coordinator.shares.states import StateBatch
from millstream.protocol.layout import Field, Int32, Int64, Layout


class ShareKey(msgspec.Struct, frozen=True, order=True):
    """One group's queue on one partition."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        """The form that Kafka uses to find a coordinator."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


class SnapshotKey(msgspec.Struct, frozen=True):
    group_id: str
    topic_id: UUID
    partition: Int32


class Snapshot(msgspec.Struct, frozen=True):
    """`final`: how many records from `start` on are settled; -1 if unknown."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start: Int64
    created_ms: Int64
    written_ms: Int64
    batches: tuple[StateBatch, ...]
    final: Annotated[Int32, Field(tag=0)] = -1


class UpdateKey(msgspec.Struct, frozen=True):
    group_id: str
    topic_id: UUID
    partition: Int32


class Update(msgspec.Struct, frozen=True):
    """A `start` of -1 means unchanged."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start: Int64
    batches: tuple[StateBatch, ...]
    final: Annotated[Int32, Field(tag=0)] = -1


class ShareRecord(msgspec.Struct, frozen=True):
    """A snapshot without a value removes the queue's state."""

    key: SnapshotKey | UpdateKey
    value: Snapshot | Update | None

    @property
    def of(self) -> ShareKey:
        return ShareKey(self.key.group_id, self.key.topic_id, self.key.partition)


_TABLE = RecordTable(
    RecordKind(0, SnapshotKey, Layout(Snapshot, flexible_from=0)),
    RecordKind(1, UpdateKey, Layout(Update, flexible_from=0)),
)


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    return _TABLE.encode(record.key, record.value)


def decode_record(key: bytes, value: bytes | None) -> ShareRecord | None:
    """None for a kind of record that only a newer version knows."""
    decoded = _TABLE.decode(key, value)
    return None if decoded is None else ShareRecord(*decoded)
