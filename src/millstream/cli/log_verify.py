"""`millstream log verify`: the files of a stopped node, or the replicas of a running cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, ExitCode, UsageError, print_error
from millstream.cli.options import AsJson
from millstream.cli.progress import ByteBar
from millstream.cli.target import Profile, Properties, target_of
from millstream.runtime.disk import SystemDisk
from millstream.storage.checkpoint import LogCheckpoint, read_checkpoint
from millstream.storage.identity import read_identity
from millstream.storage.layout import LOG_SUFFIX, TOPICS
from millstream.storage.store import LOCK_FILE
from millstream.storage.verify import Verified, verify_partition

if TYPE_CHECKING:
    from collections.abc import Iterator


def verify(
    context: typer.Context,
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A node's data directory, or the directory of one of its partitions; the node must be stopped.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="MILLSTREAM_BOOTSTRAP",
            metavar="HOST:PORT",
            help="Compare the replicas of a running cluster instead; any node of it.",
        ),
    ] = None,
    properties: Properties = None,
    profile: Profile = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="Only this topic; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that logs are sound: the files of a node that is stopped, or the replicas of a running cluster.

    With DIR every batch's checksum is verified, that offsets follow each other, and that the indexes agree.
    With --bootstrap every replica of a partition is read by its own node up to the high watermark, and checksums
    are compared; where replicas differ, the first offset that does is named. Exits with 1 when anything is wrong.

    \b
    Examples:
      millstream log verify ./data
      millstream log verify ./data/topics/events/partition-0 --json
      millstream log verify --bootstrap localhost:9092 --topic events
    """
    if path is None:
        if bootstrap is None and profile is None:
            raise UsageError("name a directory, or a running cluster with --bootstrap HOST:PORT")
        from millstream.cli.log_replicas import verify_replicas

        verify_replicas(target_of(bootstrap, properties or (), profile), topic or [], as_json)
        return
    source = context.get_parameter_source("bootstrap")
    if source is not None and source.name == "COMMANDLINE":
        raise UsageError("give a directory or --bootstrap, not both")
    if topic:
        raise UsageError("--topic goes with --bootstrap; name the directory of a partition instead")
    verify_files(path, as_json)


def verify_files(path: Path, as_json: bool) -> None:
    if not path.is_dir():
        raise CommandError(f"{path}: there is no such directory")
    data_dir, partitions = partitions_in(path)
    disk = SystemDisk()
    if data_dir is not None and (data_dir / LOCK_FILE).exists() and not disk.lock(str(data_dir / LOCK_FILE)):
        raise CommandError(
            f"{data_dir} is in use by a running node; stop it, or compare replicas with --bootstrap"
        )
    found = read_checkpoint(disk, str(data_dir)) if data_dir is not None else None
    known: dict[tuple[str, int, bytes], LogCheckpoint] = {
        (entry.topic, entry.partition, entry.topic_id): entry
        for entry in (found[0] if found is not None else ())
    }
    verified = []
    with ByteBar("verifying") as bar:
        bar.expect(sum(each.stat().st_size for part in partitions for each in part.glob(f"*{LOG_SUFFIX}")))
        for partition in partitions:
            owner = read_identity(disk, str(partition))
            entry = known.get((*identity(partition), owner.topic_id)) if owner is not None else None
            verified.append(verify_partition(disk, str(partition), known=entry, read=bar.advance))
    show_verified(verified, as_json)


def partitions_in(path: Path) -> tuple[Path | None, list[Path]]:
    """The data directory, where there is one, and the partitions' directories."""
    path = path.absolute()
    if (path / TOPICS).is_dir():
        return path, sorted(partition_directories(path / TOPICS), key=identity)
    if any(each.stem.isdecimal() for each in path.glob(f"*{LOG_SUFFIX}")):
        above = path.parents[2] if len(path.parents) > 2 and path.parents[1].name == TOPICS else None
        return above, [path]
    raise CommandError(f"{path} is neither a data directory (with {TOPICS}/ in it) nor that of a partition")


def partition_directories(topics: Path) -> "Iterator[Path]":
    for directory in topics.glob("*/partition-*"):
        if directory.name.removeprefix("partition-").isdecimal():
            yield directory


def identity(partition: Path) -> tuple[str, int]:
    number = partition.name.removeprefix("partition-")
    return partition.parent.name, int(number) if number.isdecimal() else -1


def show_verified(verified: list[Verified], as_json: bool) -> None:
    damages = [damage for each in verified for damage in each.damages]
    if as_json:
        output.json_document({"sound": not damages, "partitions": msgspec.to_builtins(verified)})
    else:
        output.table(
            ("directory", "segments", "batches", "records", "bytes", "start", "end", "torn", "result"),
            [
                (
                    each.directory,
                    each.segments,
                    each.batches,
                    each.records,
                    each.size_bytes,
                    each.start_offset,
                    each.end_offset,
                    each.torn_bytes,
                    f"{len(each.damages)} damages" if each.damages else "sound",
                )
                for each in verified
            ],
        )
    if damages:
        output.flush()
        for damage in damages:
            print_error(str(damage))
        raise typer.Exit(ExitCode.FAILURE)
