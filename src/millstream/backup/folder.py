"""The folder that backups lie in, over any disk.

<folder>/millstream-backup                     says what the folder is
<folder>/backups/<id>.json                     a manifest for each backup
<folder>/segments/<topic id>/<partition>/      the files, shared by all backups that need them

A manifest is written when all its files are on disk, so a backup is there as a whole or not at all. Files that no
manifest names were left by a backup that was interrupted, or belonged to one that somebody removed: they go when the
next one is made.
"""

import os.path
from collections.abc import Iterator
from datetime import UTC, datetime

from millstream.backup.manifest import (
    BackupError,
    Damaged,
    Manifest,
    NoRoom,
    NotABackup,
    decode_manifest,
    encode_manifest,
    segment_path,
)
from millstream.protocol.checksum import crc32c
from millstream.runtime.disk import NO_ROOM, Disk

MARKER = "millstream-backup"
MARKER_TEXT = b"backups made by `millstream backup create`; format 1\n"
LOCK = ".lock"
BACKUPS = "backups"
SEGMENTS = "segments"
MANIFEST_SUFFIX = ".json"
_PIECE_BYTES = 4 << 20


class BackupFolder:
    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    def open(self) -> None:
        """Open for reading; NotABackup if the folder holds something else."""
        if not self.disk.exists(f"{self.path}/{MARKER}"):
            raise NotABackup(f"{self.path} holds no backups; `millstream backup create` makes one there")

    def open_for_writing(self) -> None:
        """Create the folder if needed, and lock it against other writers."""
        disk = self.disk
        marker = f"{self.path}/{MARKER}"
        if not disk.exists(marker):
            others = [name for name in disk.list_dir(self.path) if name not in (LOCK, f"{MARKER}.tmp")]
            if others:
                raise NotABackup(
                    f"{self.path} is not empty and holds no backups; choose an empty folder or a new one"
                )
            self._make(self.path)
        if not disk.lock(f"{self.path}/{LOCK}"):
            raise BackupError(f"another backup is being written to {self.path}; wait until it is done")
        if not disk.exists(marker):
            disk.write_atomically(marker, MARKER_TEXT)

    def _make(self, path: str) -> None:
        """Create a directory that survives a loss of power."""
        disk = self.disk
        made = []
        while path and not disk.exists(path):
            made.append(path)
            path = os.path.dirname(path)
        if not made:
            return
        disk.make_dirs(made[0])
        for each in reversed(made):
            disk.sync_dir(os.path.dirname(each) or "/")

    # -- manifests

    def backup_ids(self) -> list[str]:
        """The oldest first."""
        names = self.disk.list_dir(f"{self.path}/{BACKUPS}")
        return sorted(name.removesuffix(MANIFEST_SUFFIX) for name in names if name.endswith(MANIFEST_SUFFIX))

    def read(self, backup_id: str) -> Manifest:
        path = self.manifest_path(backup_id)
        if not self.disk.exists(path):
            known = ", ".join(self.backup_ids()[-3:]) or "none"
            raise BackupError(f"there is no backup {backup_id!r} in {self.path}; the newest are: {known}")
        return decode_manifest(self.disk.read(path), path)

    def manifest_path(self, backup_id: str) -> str:
        return f"{self.path}/{BACKUPS}/{backup_id}{MANIFEST_SUFFIX}"

    def new_id(self, now_ms: int) -> str:
        """Ids sort by time; one that is taken, or not after the newest, gets a number."""
        moment = datetime.fromtimestamp(now_ms / 1000, UTC)
        name = f"{moment:%Y%m%dT%H%M%S}.{now_ms % 1000:03d}Z"
        newest = max(self.backup_ids(), default="")
        if name > newest:
            return name
        base, _, number = newest.partition("+")
        return f"{base}+{int(number or 0) + 1:04d}"

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest: from here on the backup exists."""
        self._make(f"{self.path}/{BACKUPS}")
        self.disk.write_atomically(self.manifest_path(manifest.backup_id), encode_manifest(manifest))

    # -- files

    def partition_directory(self, topic_id: str, index: int) -> str:
        path = f"{self.path}/{SEGMENTS}/{topic_id}/{index}"
        self._make(path)
        return path

    def has(self, relative: str, size_bytes: int) -> bool:
        """Whether the file exists with its full size; `check` reads its bytes."""
        path = f"{self.path}/{relative}"
        return self.disk.exists(path) and self.disk.size(path) == size_bytes

    def remove_unnamed(self, manifests: list[Manifest]) -> int:
        """Remove files that no manifest names; returns their bytes."""
        named = {f"{self.path}/{segment_path(*each)}" for manifest in manifests for each in manifest.files()}
        removed = 0
        for path in list(self._files()):
            if path not in named:
                removed += self.disk.size(path)
                self.disk.unlink(path)
        return removed

    def _files(self) -> Iterator[str]:
        root = f"{self.path}/{SEGMENTS}"
        for topic in self.disk.list_dir(root):
            for index in self.disk.list_dir(f"{root}/{topic}"):
                for name in self.disk.list_dir(f"{root}/{topic}/{index}"):
                    yield f"{root}/{topic}/{index}/{name}"

    def check(self, relative: str, size_bytes: int, checksum: int) -> Iterator[int]:
        """Read a file and compare it with the manifest; yields the sizes of the pieces, and raises Damaged at the
        end.
        """
        path = f"{self.path}/{relative}"
        if not self.disk.exists(path):
            raise Damaged(f"{path} is missing")
        file = self.disk.open(path, read_only=True)
        try:
            if file.size() != size_bytes:
                raise Damaged(f"{path} holds {file.size()} bytes, {size_bytes} were written")
            found = position = 0
            while position < size_bytes:
                piece = file.pread(_PIECE_BYTES, position)
                if not piece:
                    raise Damaged(f"{path} ends at byte {position}, {size_bytes} were written")
                found = crc32c(piece, found)
                position += len(piece)
                yield len(piece)
        finally:
            file.close()
        if found != checksum:
            raise Damaged(f"{path} fails its checksum: it was changed or is damaged")


def out_of_room(error: OSError, path: str, disk: Disk) -> BackupError:
    """Explains a failed write to the user."""
    if error.errno in NO_ROOM:
        return NoRoom(
            f"no room in {path}: {disk.free_bytes(path):,} bytes are free now that nothing is kept of this attempt"
        )
    return BackupError(f"cannot write to {path}: {error.strerror}")
