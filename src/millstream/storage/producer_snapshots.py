"""A log's producer snapshots by offset, and which of them recovery may still need."""

from collections.abc import Iterable

from millstream.runtime.disk import Disk
from millstream.storage.layout import snapshot_path


class ProducerSnapshots:
    """A snapshot may be missing on disk: the next flush writes it, and only if there are producers."""

    __slots__ = ("_directory", "_offsets", "checkpointed_base")

    def __init__(self, directory: str, offsets: Iterable[int], checkpointed_base: int) -> None:
        self._directory = directory
        self._offsets = list(offsets)
        self.checkpointed_base = checkpointed_base
        """Recovery would scan from this segment on."""

    def add(self, offset: int) -> str:
        """The path of a snapshot at the log's end."""
        self._offsets.append(offset)
        return snapshot_path(self._directory, offset)

    def checkpointed(self, base_offset: int) -> list[str]:
        """Recovery would scan from this segment on; returns the paths that are no longer needed."""
        self.checkpointed_base = base_offset
        old = [offset for offset in self._offsets if offset < base_offset]
        del self._offsets[: len(old)]
        return [snapshot_path(self._directory, offset) for offset in old]

    def scanned_from(self, base_offset: int) -> None:
        """Recovery would scan from this segment or an earlier one."""
        self.checkpointed_base = min(self.checkpointed_base, base_offset)

    def newest(self, disk: Disk, offset: int) -> int | None:
        """The offset of the newest snapshot on disk that is not after `offset`."""
        for each in reversed(self._offsets):
            if each <= offset and disk.exists(snapshot_path(self._directory, each)):
                return each
        return None

    def after(self, end_offset: int) -> list[str]:
        """The paths of snapshots after `end_offset`."""
        return [snapshot_path(self._directory, each) for each in self._offsets if each > end_offset]

    def forget(self, end_offset: int) -> list[str]:
        """What was written after `end_offset` is not known in them; returns their paths, for deletion."""
        gone = self.after(end_offset)
        self._offsets = [each for each in self._offsets if each <= end_offset]
        return gone

    def cut(self, end_offset: int, base_offset: int, written: int | None) -> None:
        """The log ends at `end_offset` now, in the segment at `base_offset`; a cut may have written one."""
        self.scanned_from(base_offset)
        kept = {each for each in self._offsets if each <= end_offset}
        self._offsets = sorted(kept if written is None else kept | {written})
