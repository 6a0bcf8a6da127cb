"""What one fsync of a log has to do. Collected on the event loop, carried out in another thread, reported back."""

from dataclasses import dataclass, field

from millstream.runtime.disk import Disk, File
from millstream.storage.segment import Segment


@dataclass(slots=True)
class FlushTicket:
    """All of a log that was written but not synced when the ticket was made."""

    end_offset: int
    end_position: tuple[int, int]
    end_bytes: int
    directories: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    sealed: list[Segment] = field(default_factory=list)
    small_files: list[tuple[str, bytes]] = field(default_factory=list)

    garbage: list[str] = field(default_factory=list)

    def run(self, disk: Disk) -> None:
        """Blocks until everything is on stable storage; an OSError means that it may not be."""
        for file in self.files:
            file.sync()
        for segment in self.sealed:
            segment.index.write(disk, durable=True)
            segment.time_index.write(disk, durable=True)
        for path, data in self.small_files:
            disk.write_atomically(path, data)
        for directory in self.directories:
            disk.sync_dir(directory)
        for path in self.garbage:
            disk.unlink(path)
