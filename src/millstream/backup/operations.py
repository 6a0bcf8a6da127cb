"""Creates, lists and restores backups on this machine's disk; the command line only shows the results."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millstream import __version__
from millstream.backup.create import BackupMaker, Progress
from millstream.backup.folder import BackupFolder
from millstream.backup.manifest import BackupError, Damaged, Manifest, Selection, segment_path
from millstream.backup.plan import Plan, plan_of, plan_until
from millstream.backup.restore import Restored, Restorer
from millstream.client.wire.cluster import Cluster
from millstream.runtime.clock import SystemClock
from millstream.runtime.disk import SystemDisk


@dataclass(slots=True)
class ListedBackup:
    backup_id: str
    manifest: Manifest | None
    is_sound: bool | None
    """None if the backup was not verified."""
    damages: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.damages:
            return "damaged"
        return "not verified" if self.is_sound is None else "sound"


def create_backup(
    cluster: Cluster, source: str, folder: Path, selection: Selection, progress: Progress
) -> Manifest:
    """`source` is the cluster's address as the manifest shows it."""
    return BackupMaker(cluster, _folder(folder), SystemClock(), __version__, progress).make(source, selection)


def list_backups(folder: Path, verify: Progress | None) -> list[ListedBackup]:
    """The oldest first. With `verify` every file is read and checked, and progress is reported to it."""
    opened = _folder(folder)
    opened.open()
    listed = []
    for backup_id in opened.backup_ids():
        try:
            listed.append(ListedBackup(backup_id, opened.read(backup_id), None))
        except Damaged as error:
            listed.append(ListedBackup(backup_id, None, False, [str(error)]))
    if verify is not None:
        _verify_files(opened, listed, verify)
    return listed


def restore_backup(
    folder: Path,
    data: Path,
    node_id: int,
    selection: Selection,
    progress: Progress,
    *,
    backup_id: str | None = None,
    until_ms: int | None = None,
) -> tuple[Plan, Restored]:
    """Restore up to `until_ms`, or one backup: the newest without `backup_id`."""
    opened = _folder(folder)
    opened.open()
    known = opened.backup_ids()
    if not known:
        raise BackupError(f"{folder} holds no backup yet")
    if until_ms is None:
        plan = plan_of(opened.read(backup_id or known[-1]), selection)
    else:
        plan = plan_until([opened.read(each) for each in known], until_ms, selection)
    progress.expect(plan.size_bytes)
    restorer = Restorer(
        opened, SystemDisk(), SystemClock(), str(data.absolute()), node_id, read=progress.copied
    )
    return plan, restorer.restore(plan)


def _folder(path: Path) -> BackupFolder:
    return BackupFolder(SystemDisk(), str(path.absolute()))


def _verify_files(folder: BackupFolder, listed: Sequence[ListedBackup], progress: Progress) -> None:
    """Reads every file once, even if several backups share it."""
    files = {
        segment_path(*each): each[2]
        for one in listed
        if one.manifest is not None
        for each in one.manifest.files()
    }
    progress.expect(sum(each.size_bytes for each in files.values()))
    damages: dict[str, str] = {}
    for path, segment in files.items():
        try:
            for size in folder.check(path, segment.size_bytes, segment.checksum):
                progress.copied(size)
        except Damaged as error:
            damages[path] = str(error)
    for one in listed:
        if one.manifest is not None:
            needed = [segment_path(*each) for each in one.manifest.files()]
            one.damages += [damages[path] for path in needed if path in damages]
            one.is_sound = not one.damages
