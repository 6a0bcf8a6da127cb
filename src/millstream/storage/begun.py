"""Markers of logs first written since the last checkpoint: an empty file each, synced with the log's first records.

After a crash they distinguish a log whose directory was lost from one that was never written.
"""

from collections.abc import Iterable
from typing import NamedTuple

from millstream.runtime.disk import Disk
from millstream.storage.identity import Identity

_DIRECTORY = "begun"


class BegunLog(NamedTuple):
    topic_id: str
    partition: str
    """The name of the partition's directory."""
    incarnation: str

    @classmethod
    def of(cls, topic_id: bytes, directory: str, incarnation: bytes = b"") -> "BegunLog":
        return cls(topic_id.hex(), directory.rpartition("/")[2], incarnation.hex())

    @property
    def place(self) -> tuple[str, str]:
        """Identifies the partition, whichever incarnation of its log."""
        return self.topic_id, self.partition


def mark_begun(disk: Disk, data_dir: str, directory: str, identity: Identity) -> str:
    """Returns the directory that must be synced."""
    begun = f"{data_dir}/{_DIRECTORY}"
    disk.make_dirs(begun)
    log = BegunLog.of(identity.topic_id, directory, identity.incarnation)
    disk.open(f"{begun}/{'.'.join(log)}", create=True).close()
    return begun


def begun_logs(disk: Disk, data_dir: str) -> set[BegunLog]:
    names = (name.split(".") for name in disk.list_dir(f"{data_dir}/{_DIRECTORY}"))
    return {BegunLog(*parts) for parts in names if len(parts) == len(BegunLog._fields)}


def forget_begun(disk: Disk, data_dir: str, logs: Iterable[BegunLog]) -> None:
    """Remove markers of logs that a checkpoint on disk covers. One that a crash restores only leaves a log in doubt."""
    for log in sorted(logs):
        disk.unlink(f"{data_dir}/{_DIRECTORY}/{'.'.join(log)}")
