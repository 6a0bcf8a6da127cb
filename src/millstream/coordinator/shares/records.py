"""The records of `__share_group_state`: Kafka's two kinds, and their bytes.

A snapshot says all of one group's queue on one partition, updates what changed since. Our own addition is a tagged
field with the time before which a stretch is not delivered again; Kafka's readers pass over it.
"""

from base64 import urlsafe_b64encode
from uuid import UUID

import msgspec

from millstream.coordinator.record_table import RecordKind, RecordTable
from millstream.coordinator.shares.states import RecordState, StateBatch
from millstream.protocol.layout import INT8, INT16, INT32, INT64, STRING, Field, Layout, array, mapped
from millstream.protocol.layout import UUID as UUID_KIND

_DUE_TAG = 10_000


class ShareKey(msgspec.Struct, frozen=True, order=True):
    """One group's queue on one partition."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        """As Kafka writes it where a coordinator is looked for."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


class SnapshotKey(msgspec.Struct, frozen=True):
    group_id: str
    topic_id: UUID
    partition: int


class Snapshot(msgspec.Struct, frozen=True):
    """`final`: how many records from `start` on are settled; -1 unknown."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...]
    final: int = -1


class UpdateKey(msgspec.Struct, frozen=True):
    group_id: str
    topic_id: UUID
    partition: int


class Update(msgspec.Struct, frozen=True):
    """A `start` of -1 is the one before."""

    snapshot_epoch: int
    leader_epoch: int
    start: int
    batches: tuple[StateBatch, ...]
    final: int = -1


class ShareRecord(msgspec.Struct, frozen=True):
    """A snapshot without a value removes the queue's state."""

    key: SnapshotKey | UpdateKey
    value: Snapshot | Update | None

    @property
    def of(self) -> ShareKey:
        return ShareKey(self.key.group_id, self.key.topic_id, self.key.partition)


_KEY = (Field("group_id", STRING), Field("topic_id", UUID_KIND), Field("partition", INT32))
_BATCH = Layout(
    StateBatch,
    Field("first", INT64),
    Field("last", INT64),
    Field("state", mapped(INT8, int, RecordState)),
    Field("count", INT16),
    Field("due_ms", INT64, tag=_DUE_TAG, default=0),
)
_BATCHES = mapped(array(_BATCH), list, tuple)
_SNAPSHOT = Layout(
    Snapshot,
    Field("snapshot_epoch", INT32),
    Field("state_epoch", INT32),
    Field("leader_epoch", INT32),
    Field("start", INT64),
    Field("created_ms", INT64),
    Field("written_ms", INT64),
    Field("batches", _BATCHES),
    Field("final", INT32, tag=0, default=-1),
    flexible_from=0,
)
_UPDATE = Layout(
    Update,
    Field("snapshot_epoch", INT32),
    Field("leader_epoch", INT32),
    Field("start", INT64),
    Field("batches", _BATCHES),
    Field("final", INT32, tag=0, default=-1),
    flexible_from=0,
)
_TABLE = RecordTable(
    RecordKind(0, Layout(SnapshotKey, *_KEY), _SNAPSHOT, SnapshotKey),
    RecordKind(1, Layout(UpdateKey, *_KEY), _UPDATE, UpdateKey),
)


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    return _TABLE.encode(record.key, record.value)


def decode_record(key: bytes, value: bytes | None) -> ShareRecord | None:
    """None for a kind of record that only a newer version knows."""
    decoded = _TABLE.decode(key, value)
    return None if decoded is None else ShareRecord(*decoded)
