"""Puts cleaned segments in their sources' place; a crash at any point leaves the old or the new ones.

    commit   <base>.swap, a durable list of the sources, decides that the new segment is the one that counts
    apply    sources become .deleted, .cleaned files become the segment; renames only, so it may run inline
    finish   the directory is synced, .swap and .deleted files go

`commit` and `finish` sync and belong in an executor. `apply` belongs on the event loop, in one step with the
change of the segments in memory: in between, a segment opened by path would be another one than its summary
says. Groups of one cleaning are swapped one after the other in offset order: a tombstone must not be gone
while an older record of its key is still there.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Disk
from millstream.storage.compaction.cleaned_segment import CLEANED, FILE_KINDS
from millstream.storage.identity import read_identity
from millstream.storage.layout import offset_in, with_checksum, without_checksum

SWAP = ".swap"
DELETED = ".deleted"
_TEMPORARY = ".tmp"


def commit_swap(disk: Disk, directory: str, sources: Sequence[int]) -> None:
    """Decide the swap: from here on it will be completed, after a crash by `recover_swap`."""
    listed = with_checksum(msgspec.json.encode(list(sources)).decode() + "\n")
    disk.write_atomically(_manifest(directory, sources[0]), listed, durable=True)


def is_committed(disk: Disk, directory: str, sources: Sequence[int]) -> bool:
    """Whether a failed commit may still have taken effect."""
    return disk.exists(_manifest(directory, sources[0]))


def apply_swap(disk: Disk, directory: str, sources: Sequence[int]) -> None:
    """Rename the files; steps done before a crash are skipped."""
    base, *merged = (f"{directory}/{source:020d}" for source in sources)
    for stem in merged:
        for kind in FILE_KINDS:
            if disk.exists(stem + kind):
                disk.rename(stem + kind, stem + kind + DELETED)
    for kind in FILE_KINDS:
        path = base + kind
        # Without a .cleaned file, the new file is already in place.
        if disk.exists(path + CLEANED):
            if disk.exists(path):
                disk.rename(path, path + DELETED)
            disk.rename(path + CLEANED, path)


def finish_swap(disk: Disk, directory: str, sources: Sequence[int]) -> None:
    """Make the renames durable, then forget the swap and remove the old files."""
    disk.sync_dir(directory)
    disk.unlink(_manifest(directory, sources[0]))
    disk.sync_dir(directory)
    for source in sources:
        for kind in FILE_KINDS:
            disk.unlink(f"{directory}/{source:020d}{kind}{DELETED}")


def recover_swap(disk: Disk, directory: str) -> None:
    """On start, before segments are listed: complete committed swaps, remove the files of others."""
    names = sorted(disk.list_dir(directory))
    swapped = [base for name in names if (base := offset_in(name, SWAP)) is not None]
    for base_offset in swapped:
        sources = _read_manifest(disk, directory, base_offset)
        # The .swap file may be in the page cache only; if it were lost, the renamed files would be removed.
        disk.sync_dir(directory)
        apply_swap(disk, directory, sources)
        finish_swap(disk, directory, sources)
    for name in disk.list_dir(directory) if swapped else names:
        if name.endswith((CLEANED, DELETED, CLEANED + _TEMPORARY, SWAP + _TEMPORARY)):
            disk.unlink(f"{directory}/{name}")


def _manifest(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}{SWAP}"


def _read_manifest(disk: Disk, directory: str, base_offset: int) -> list[int]:
    path = _manifest(directory, base_offset)
    with suppress(ValueError):
        sources = msgspec.json.decode(without_checksum(disk.read(path)), type=list[int])
        if sources and sources == sorted(sources):
            return sources
    # The .swap file is damaged. All sources have the new segment's number, which was on disk earlier.
    identity = read_identity(disk, directory)
    number = identity.rewritten.get(base_offset) if identity is not None else None
    if identity is None or number is None:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be read, and nothing else tells what was compacted"
        )
    return sorted(base for base, its_number in identity.rewritten.items() if its_number == number)
