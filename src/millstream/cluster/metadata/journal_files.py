"""Reading the journal's directory back: which files count, and in which order their frames follow."""

import os.path
import re
from dataclasses import dataclass

import msgspec

from millstream.cluster.metadata.frames import Frame, JournalCorrupt, read_frame, read_frames
from millstream.cluster.metadata.records import MetadataRecord, decode_records
from millstream.runtime.disk import Disk

_NAME = re.compile(r"(\d{20})\.(snapshot|journal)(\.tmp)?")


@dataclass(frozen=True, slots=True)
class Replay:
    """All records in order, the next frame's number, and the file to go on with up to where it is whole."""

    records: list[MetadataRecord]
    sequence: int
    active: str
    active_end: int


def file_name(sequence: int, kind: str) -> str:
    return f"{sequence:020d}.{kind}"


def is_journal_file(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def replay(disk: Disk, directory: str) -> Replay:
    names = sorted(filter(is_journal_file, disk.list_dir(directory)))
    snapshots = [name for name in names if name.endswith(".snapshot")]
    journals = [name for name in names if name.endswith(".journal")]
    first = 0
    records: list[MetadataRecord] = []
    if snapshots:
        first, records = _read_snapshot(disk, os.path.join(directory, snapshots[-1]))
        if not journals:
            raise JournalCorrupt(
                os.path.join(directory, snapshots[-1]), 0, "the journal beside it is missing"
            )
    # An empty journal was just begun, or its beginning was interrupted and the one before it went on.
    written = [name for name in journals if disk.size(os.path.join(directory, name)) > 0]
    sequence, end = first, 0
    for name in written:
        path = os.path.join(directory, name)
        data = _read_from_disk(disk, path)
        end = 0
        for frame in read_frames(path, data):
            end = frame.end
            if frame.sequence < first:
                continue
            if frame.sequence != sequence:
                raise JournalCorrupt(
                    path, frame.position, f"frame {sequence} is missing before {frame.sequence}"
                )
            records += _decode(path, frame)
            sequence += 1
        if end < len(data) and name != written[-1]:
            raise JournalCorrupt(path, end, "the last frame is broken, yet a newer journal exists")
    active = written[-1] if written else journals[-1] if journals else file_name(sequence, "journal")
    return Replay(records, sequence, active, end)


def _read_snapshot(disk: Disk, path: str) -> tuple[int, list[MetadataRecord]]:
    data = disk.read(path)
    frame = read_frame(memoryview(data), 0)
    if frame is None or frame.end != len(data):
        raise JournalCorrupt(path, 0, "the snapshot's checksum does not match")
    return frame.sequence, _decode(path, frame)


def _read_from_disk(disk: Disk, path: str) -> bytes:
    """After a failed fsync the page cache may hold frames that the disk does not: ask the disk."""
    file = disk.open(path)
    try:
        file.sync()
        file.drop_cache()
        return file.pread(file.size(), 0)
    finally:
        file.close()


def _decode(path: str, frame: Frame) -> list[MetadataRecord]:
    try:
        return decode_records(frame.payload)
    except msgspec.MsgspecError as error:
        reason = f"undamaged but unreadable ({error}); was it written by a newer version?"
        raise JournalCorrupt(path, frame.position, reason) from error
