"""Logs that were begun since the last checkpoint: an empty file for each, synced together with its first records.

After a crash they tell a log whose directory is lost from one that was never written, of which no checkpoint can say.
"""

from collections.abc import Iterable
from typing import NamedTuple

from millstream.runtime.disk import Disk
from millstream.storage.identity import Identity

_DIRECTORY = "begun"


class BegunLog(NamedTuple):
    topic_id: str
    partition: str
    """The name of its directory."""
    incarnation: str

    @classmethod
    def of(cls, topic_id: bytes, directory: str, incarnation: bytes = b"") -> "BegunLog":
        return cls(topic_id.hex(), directory.rpartition("/")[2], incarnation.hex())

    @property
    def place(self) -> tuple[str, str]:
        """The same for all logs of a partition, one after the other."""
        return self.topic_id, self.partition


def mark_begun(disk: Disk, data_dir: str, directory: str, identity: Identity) -> str:
    """Returns the directory that is to be synced."""
    begun = f"{data_dir}/{_DIRECTORY}"
    disk.make_dirs(begun)
    log = BegunLog.of(identity.topic_id, directory, identity.incarnation)
    disk.open(f"{begun}/{'.'.join(log)}", create=True).close()
    return begun


def begun_logs(disk: Disk, data_dir: str) -> set[BegunLog]:
    names = (name.split(".") for name in disk.list_dir(f"{data_dir}/{_DIRECTORY}"))
    return {BegunLog(*parts) for parts in names if len(parts) == len(BegunLog._fields)}


def forget_begun(disk: Disk, data_dir: str, logs: Iterable[BegunLog]) -> None:
    """A checkpoint that is on disk tells of them. One that a crash brings back leaves a log in doubt, no more."""
    for log in sorted(logs):
        disk.unlink(f"{data_dir}/{_DIRECTORY}/{'.'.join(log)}")
