"""`millstream log`: look into the files of a partition's log, and check that logs are sound."""

import base64
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from millstream.cli import output
from millstream.cli.errors import CommandError, ExitCode, UsageError, print_error
from millstream.cli.log_verify import verify
from millstream.cli.messages import header_to_json, text_or_base64
from millstream.cluster.metadata.directory import DIRECTORY
from millstream.cluster.metadata.dump import dump_metadata
from millstream.cluster.raft.wal_files import files_of
from millstream.cluster.raft.wal_frames import WalCorrupt
from millstream.runtime.disk import SystemDisk
from millstream.storage.dump import Corruption, RecordRow, Row, UnknownFileKind, dump_file

app = typer.Typer(
    help="Look into the files of a partition's log, and check that logs are sound.", no_args_is_help=True
)

# The most rows in one table: a segment can hold millions, and a table is laid out as a whole.
TABLE_ROWS = 1000
SHOWN_BYTES = 60


@app.command()
def dump(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A .log, .index, .timeindex or .snapshot file, a leader-epoch-checkpoint, or __cluster_metadata.",
            show_default=False,
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show the records of each batch too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Show what a file of the log holds: batches, records, index entries, producers, leader epochs or metadata.

    The file may be in use. Exits with 1 when it is damaged, after showing all up to there.

    \b
    Examples:
      millstream log dump data/topics/events/partition-0/00000000000000000000.log
      millstream log dump data/topics/events/partition-0/00000000000000000000.log --records --json
      millstream log dump data/__cluster_metadata
    """
    if DIRECTORY in (file.absolute().name, file.absolute().parent.name):
        show_metadata(file, as_json)
        return
    if file.is_dir():
        raise UsageError(f"{file} is a directory; name one of the files in it")
    if not file.exists():
        raise CommandError(f"{file}: there is no such file")
    try:
        rows = dump_file(SystemDisk(), str(file), records=records)
    except UnknownFileKind as error:
        raise UsageError(str(error)) from error
    damage = show_json(rows) if as_json else show_tables(rows)
    if damage is not None:
        output.flush()
        print_error(f"{damage.path} is damaged at byte {damage.position}: {damage.message}")
        raise typer.Exit(ExitCode.FAILURE)


def show_metadata(path: Path, as_json: bool) -> None:
    """Show one file of the metadata log, or all files of a directory in order."""
    disk = SystemDisk()
    files = files_of(disk, str(path)) if path.is_dir() else [str(path)]
    # Sorted so that a snapshot comes before later entries.
    files.sort(key=lambda each: (Path(each).stem, each.endswith(".wal")))
    if not path.exists():
        raise CommandError(f"{path}: there is no such file")
    try:
        rows = [row for each in files for row in dump_metadata(disk, each)]
    except WalCorrupt as error:
        raise CommandError(str(error)) from error
    if as_json:
        for row in rows:
            output.json_document({"kind": "metadata", **msgspec.to_builtins(row)})
        return
    output.table(
        ("index", "term", "record", "fields"),
        [
            (
                row.index,
                row.term,
                row.record,
                " ".join(f"{name}={value}" for name, value in row.fields.items()),
            )
            for row in rows
        ],
    )


def show_json(rows: Iterable[Row]) -> Corruption | None:
    import orjson

    for row in rows:
        document = record_document(row) if isinstance(row, RecordRow) else asdict(row)
        output.write(orjson.dumps({"kind": row.kind, **document}, option=orjson.OPT_APPEND_NEWLINE))
        if isinstance(row, Corruption):
            return row
    return None


def record_document(row: RecordRow) -> dict[str, object]:
    return {
        "offset": row.offset,
        "timestamp_ms": row.timestamp_ms,
        **text_or_base64("key", row.key),
        **text_or_base64("value", row.value),
        "headers": [[name, header_to_json(value)] for name, value in row.headers],
    }


def show_tables(rows: Iterable[Row]) -> Corruption | None:
    """Show each run of rows of one kind as a table, so that records are below their batch."""
    pending: list[Row] = []
    for row in rows:
        if isinstance(row, Corruption):
            show_table(pending)
            return row
        if pending and (type(row) is not type(pending[0]) or len(pending) == TABLE_ROWS):
            show_table(pending)
            pending = []
        pending.append(row)
    show_table(pending)
    return None


def show_table(rows: list[Row]) -> None:
    if not rows:
        return
    cells = [{name: cell(value) for name, value in asdict(row).items()} for row in rows]
    columns = list(cells[0])
    if sys.stdout.isatty():
        # A batch has more columns than a terminal; columns that are empty in all batches are left out.
        columns = [name for name in columns if any(says_something(row[name]) for row in cells)]
    output.table(columns, [[row[name] for name in columns] for row in cells])


def says_something(value: object) -> bool:
    return value is not None and value is not False and value not in (-1, ())


def cell(value: object) -> object:
    if isinstance(value, bytes):
        return readable(value)
    if isinstance(value, tuple):
        return tuple(f"{name}={'null' if content is None else readable(content)}" for name, content in value)
    return value


def readable(data: bytes) -> str:
    """UTF-8 as text, other bytes as base64, both truncated to fit into a line."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "base64:" + base64.b64encode(data).decode()
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}... ({len(data)} bytes)"


app.command()(verify)
