"""The frames' payloads. Field order is the disk format: fields are only ever added at the end, with a default."""

import msgspec

from millstream.cluster.raft.entries import Entry, EntryKind, HardState, Restored, Snapshot
from millstream.cluster.raft.membership import MemberKey, Membership


class StoredEntry(msgspec.Struct, frozen=True, array_like=True):
    index: int
    term: int
    kind: EntryKind
    data: bytes


class StoredWrite(msgspec.Struct, frozen=True, array_like=True):
    """One write: the current term and vote, and entries that replace all from the first one's index on."""

    term: int
    vote: MemberKey | None
    entries: list[StoredEntry]


class StoredStart(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of a file: its owner, its snapshot, and all entries after the snapshot."""

    member: MemberKey
    snapshot_index: int
    snapshot_term: int
    write: StoredWrite


class StoredSnapshot(msgspec.Struct, frozen=True, array_like=True):
    index: int
    term: int
    membership: Membership
    data: bytes


_write_decoder = msgspec.msgpack.Decoder(StoredWrite)
_start_decoder = msgspec.msgpack.Decoder(StoredStart)
_snapshot_decoder = msgspec.msgpack.Decoder(StoredSnapshot)
_encoder = msgspec.msgpack.Encoder()


def _stored(hard_state: HardState, entries: tuple[Entry, ...]) -> StoredWrite:
    rows = [StoredEntry(entry.index, entry.term, entry.kind, entry.data) for entry in entries]
    return StoredWrite(hard_state.term, hard_state.vote, rows)


def encode_write(hard_state: HardState, entries: tuple[Entry, ...]) -> bytes:
    return _encoder.encode(_stored(hard_state, entries))


def encode_start(member: MemberKey, state: Restored) -> bytes:
    write = _stored(state.hard_state, state.entries)
    return _encoder.encode(StoredStart(member, state.snapshot.index, state.snapshot.term, write))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return _encoder.encode(StoredSnapshot(snapshot.index, snapshot.term, snapshot.membership, snapshot.data))


def decode_write(payload: memoryview) -> StoredWrite:
    return _write_decoder.decode(payload)


def decode_start(payload: memoryview) -> StoredStart:
    return _start_decoder.decode(payload)


def decode_snapshot(payload: memoryview) -> Snapshot:
    stored = _snapshot_decoder.decode(payload)
    return Snapshot(stored.index, stored.term, stored.membership, stored.data)


def replay(writes: list[StoredWrite]) -> tuple[HardState, tuple[Entry, ...]]:
    """Term, vote and log after the writes; a later entry replaces an earlier one and all after it."""
    entries: list[Entry] = []
    for write in writes:
        if write.entries and entries:
            del entries[max(0, write.entries[0].index - entries[0].index) :]
        entries += [Entry(row.index, row.term, row.kind, row.data) for row in write.entries]
    return HardState(writes[-1].term, writes[-1].vote), tuple(entries)
