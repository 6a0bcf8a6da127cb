"""Runs `millstream backup` commands with a progress bar, and shapes their results."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from millstream.backup import operations
from millstream.backup.create import Progress
from millstream.backup.manifest import BackupError, Manifest, Selection
from millstream.backup.operations import ListedBackup
from millstream.backup.plan import Plan
from millstream.backup.restore import Restored
from millstream.cli import output
from millstream.cli.errors import CommandError
from millstream.cli.options import parse_topics
from millstream.cli.progress import ByteBar
from millstream.cli.target import Target


@contextmanager
def backup_errors() -> Iterator[None]:
    """Turns a BackupError into a failure of the command."""
    try:
        yield
    except BackupError as error:
        raise CommandError(str(error)) from error


def create_backup(folder: Path, target: Target, topics: Sequence[str]) -> Manifest:
    selection = Selection(parse_topics(topics))
    with backup_errors(), target.cluster() as cluster, ByteBar("copying") as bar:
        progress = Progress(bar.expect, bar.advance, output.note)
        return operations.create_backup(cluster, target.bootstrap, folder, selection, progress)


def list_backups(folder: Path, *, verify: bool) -> list[ListedBackup]:
    with backup_errors():
        if not verify:
            return operations.list_backups(folder, None)
        with ByteBar("verifying") as bar:
            return operations.list_backups(folder, Progress(bar.expect, bar.advance))


def restore_backup(
    folder: Path, data: Path, node_id: int, backup_id: str | None, until_ms: int | None, topics: Sequence[str]
) -> tuple[Plan, Restored]:
    selection = Selection(parse_topics(topics))
    with backup_errors(), ByteBar("restoring") as bar:
        return operations.restore_backup(
            folder, data, node_id, selection, Progress(bar.expect, bar.advance),
            backup_id=backup_id, until_ms=until_ms,
        )  # fmt: skip


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
