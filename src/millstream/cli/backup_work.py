"""What `millstream backup` does, between the command line and the backup room."""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from millstream import __version__
from millstream.backup.create import BackupMaker, Progress
from millstream.backup.folder import BackupFolder
from millstream.backup.manifest import BackupError, Damaged, Manifest, Selection, segment_path
from millstream.backup.plan import Plan, plan_of, plan_until
from millstream.backup.restore import Restored, Restorer
from millstream.cli import output
from millstream.cli.errors import CommandError
from millstream.cli.options import parse_topics
from millstream.cli.progress import ByteBar
from millstream.cli.target import Target
from millstream.runtime.clock import SystemClock
from millstream.runtime.disk import SystemDisk

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def told_to_the_user() -> "Iterator[None]":
    try:
        yield
    except BackupError as error:
        raise CommandError(str(error)) from error


def create_backup(folder: Path, target: Target, topics: Sequence[str]) -> Manifest:
    selection = Selection(parse_topics(topics))
    with told_to_the_user(), target.cluster() as cluster, ByteBar("copying") as bar:
        maker = BackupMaker(
            cluster,
            BackupFolder(SystemDisk(), str(folder.absolute())),
            SystemClock(),
            __version__,
            Progress(bar.expect, bar.advance, output.note),
        )
        return maker.make(target.bootstrap, selection)


@dataclass(slots=True)
class ListedBackup:
    backup_id: str
    manifest: Manifest | None
    is_sound: bool | None
    """None where it was not checked."""
    damages: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.damages:
            return "damaged"
        return "not verified" if self.is_sound is None else "sound"


def listed_backups(folder: Path, *, verify: bool) -> list[ListedBackup]:
    with told_to_the_user():
        opened = BackupFolder(SystemDisk(), str(folder.absolute()))
        opened.open()
        listed = []
        for backup_id in opened.backup_ids():
            try:
                listed.append(ListedBackup(backup_id, opened.read(backup_id), None))
            except Damaged as error:
                listed.append(ListedBackup(backup_id, None, False, [str(error)]))
        if verify:
            verify_files(opened, listed)
        return listed


def verify_files(folder: BackupFolder, listed: Sequence[ListedBackup]) -> None:
    """Every file once, however many backups need it."""
    files = {
        segment_path(*each): each[2]
        for one in listed
        if one.manifest is not None
        for each in one.manifest.files()
    }
    damages: dict[str, str] = {}
    with ByteBar("verifying") as bar:
        bar.expect(sum(each.size_bytes for each in files.values()))
        for path, segment in files.items():
            try:
                for size in folder.check(path, segment.size_bytes, segment.checksum):
                    bar.advance(size)
            except Damaged as error:
                damages[path] = str(error)
    for one in listed:
        if one.manifest is not None:
            needed = [segment_path(*each) for each in one.manifest.files()]
            one.damages += [damages[path] for path in needed if path in damages]
            one.is_sound = not one.damages


def restore_backup(
    folder: Path, data: Path, node_id: int, backup_id: str | None, until_ms: int | None, topics: Sequence[str]
) -> tuple[Plan, Restored]:
    selection = Selection(parse_topics(topics))
    with told_to_the_user(), ByteBar("restoring") as bar:
        opened = BackupFolder(SystemDisk(), str(folder.absolute()))
        opened.open()
        known = opened.backup_ids()
        if not known:
            raise BackupError(f"{folder} holds no backup yet")
        if until_ms is None:
            plan = plan_of(opened.read(backup_id or known[-1]), selection)
        else:
            plan = plan_until([opened.read(each) for each in known], until_ms, selection)
        bar.expect(plan.size_bytes)
        restorer = Restorer(
            opened, SystemDisk(), SystemClock(), str(data.absolute()), node_id, read=bar.advance
        )
        return plan, restorer.restore(plan)


def shown_manifest(manifest: Manifest) -> dict[str, object]:
    return {
        "backup": manifest.backup_id,
        "made_ms": manifest.cut_ms,
        "made": moment_text(manifest.cut_ms),
        "cluster_id": manifest.cluster_id,
        "source": manifest.source,
        "version": manifest.version,
        "messages": manifest.record_count,
        "bytes": manifest.size_bytes,
        "copied_bytes": manifest.copied_bytes,
        "topics": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition": each.index,
                        "start": each.log_start_offset,
                        "end": each.end_offset,
                        "bytes": each.size_bytes,
                        "files": len(each.segments),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in manifest.topics
        ],
    }


def moment_text(moment_ms: int) -> str:
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
