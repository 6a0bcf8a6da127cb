"""Dumps the files of `__cluster_metadata`: every record of the metadata log, as stored."""

from collections.abc import Iterator

import msgspec

from millstream.cluster.metadata.records import decode_records
from millstream.cluster.raft.entries import EntryKind
from millstream.cluster.raft.wal_frames import WalCorrupt, read_frames
from millstream.cluster.raft.wal_records import StoredWrite, decode_snapshot, decode_start, decode_write
from millstream.runtime.disk import Disk


class MetadataRow(msgspec.Struct, frozen=True):
    """Records of the file's head or of a snapshot have the index of that head or snapshot."""

    index: int
    term: int
    record: str
    fields: dict[str, object]


def dump_metadata(disk: Disk, path: str) -> Iterator[MetadataRow]:
    """The rows of a `.wal` or `.snapshot` file, even one that a node is writing; raises WalCorrupt at damage.

    A later entry of the same index replaces the earlier one and all after it.
    """
    for number, frame in enumerate(read_frames(path, disk.read(path))):
        try:
            if path.endswith(".snapshot"):
                snapshot = decode_snapshot(frame.payload)
                members = msgspec.to_builtins(snapshot.membership)
                yield MetadataRow(snapshot.index, snapshot.term, "Snapshot", {"membership": members})
                yield from _records(snapshot.index, snapshot.term, snapshot.data)
            elif number == 0:
                start = decode_start(frame.payload)
                replica = msgspec.to_builtins(start.member)
                yield MetadataRow(start.snapshot_index, start.snapshot_term, "Start", {"replica": replica})
                yield from _write(start.write)
            else:
                yield from _write(decode_write(frame.payload))
        except msgspec.MsgspecError as error:
            raise WalCorrupt(path, frame.position, f"a frame this version cannot read: {error}") from error


def _write(write: StoredWrite) -> Iterator[MetadataRow]:
    if not write.entries:
        vote = None if write.vote is None else msgspec.to_builtins(write.vote)
        yield MetadataRow(-1, write.term, "Vote", {"vote": vote})
    for entry in write.entries:
        if entry.kind is EntryKind.DATA:
            yield from _records(entry.index, entry.term, entry.data)
        else:
            yield MetadataRow(entry.index, entry.term, entry.kind.name.capitalize(), {})


def _records(index: int, term: int, data: bytes) -> Iterator[MetadataRow]:
    for record in decode_records(data) if data else ():
        fields = {name: msgspec.to_builtins(getattr(record, name)) for name in record.__struct_fields__}
        yield MetadataRow(index, term, type(record).__name__, fields)
